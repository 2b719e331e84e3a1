//! Sends every request to the queue and lets none out of it.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::{Cluster, Decision, Pull, Request, Waiting};

struct Queue;

impl Hostile for Queue {
    const NAME: &'static str = "always-queue";

    fn pick(_nth: u32, _ask: &Request, _cluster: &Cluster) -> Decision {
        Decision::Queue
    }

    fn pull(_ask: &Pull, _waiting: &[Waiting], _cluster: &Cluster) -> Option<usize> {
        None
    }
}

pointsman_sdk::export_policy!(Guest<Queue>: route);
