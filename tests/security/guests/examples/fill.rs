//! Fills 14 MiB with one instruction in every pick: more work than its budget, and none of it in a loop.

use std::hint::black_box;

use hostile_guests::{Guest, Hostile, shortest_queue};
use pointsman_sdk::{Cluster, Decision, Request};

struct Fill;

impl Hostile for Fill {
    const NAME: &'static str = "fill";

    fn pick(_nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        black_box(vec![0xaa_u8; 14 << 20]);
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Fill>: route);
