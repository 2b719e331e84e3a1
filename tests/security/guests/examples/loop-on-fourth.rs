//! Never comes back from its fourth pick.

use hostile_guests::{Guest, Hostile, shortest_queue, spin};
use pointsman_sdk::{Cluster, Decision, Request};

struct Loop;

impl Hostile for Loop {
    const NAME: &'static str = "loop-on-fourth";

    fn pick(nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        if nth == 4 {
            spin();
        }
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Loop>: route);
