//! Exhausts its call stack in its fourth pick.

use std::hint::black_box;

use hostile_guests::{Guest, Hostile, shortest_queue};
use pointsman_sdk::{Cluster, Decision, Request};

/// Not a tail call: the addition comes after it.
fn sum_to(n: u64) -> u64 {
    if n == 0 { 0 } else { n + black_box(sum_to as fn(u64) -> u64)(n - 1) }
}

struct Recurse;

impl Hostile for Recurse {
    const NAME: &'static str = "recurse-on-fourth";

    fn pick(nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        if nth == 4 {
            black_box(sum_to(u64::MAX));
        }
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Recurse>: route);
