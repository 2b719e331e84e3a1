//! Panics on its tenth pick.

use hostile_guests::{Guest, Hostile, shortest_queue};
use pointsman_sdk::{Cluster, Decision, Request};

struct Trap;

impl Hostile for Trap {
    const NAME: &'static str = "trap-on-tenth";

    fn pick(nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        if nth == 10 {
            panic!("the tenth pick");
        }
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Trap>: route);
