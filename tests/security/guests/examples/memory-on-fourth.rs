//! Allocates without end in its fourth pick.

use hostile_guests::{Guest, Hostile, eat_memory, shortest_queue};
use pointsman_sdk::{Cluster, Decision, Request};

struct Memory;

impl Hostile for Memory {
    const NAME: &'static str = "memory-on-fourth";

    fn pick(nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        if nth == 4 {
            eat_memory();
        }
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Memory>: route);
