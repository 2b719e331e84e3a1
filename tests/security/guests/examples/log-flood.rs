//! Logs 10,000 lines of 10 KiB in every pick.

use hostile_guests::{Guest, Hostile, shortest_queue};
use pointsman_sdk::{Cluster, Decision, Level, Request, log};

struct Flood;

impl Hostile for Flood {
    const NAME: &'static str = "log-flood";

    fn pick(_nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        let line = "flood ".repeat(1707);
        for _ in 0..10_000 {
            log(Level::Info, &line);
        }
        shortest_queue(ask, cluster)
    }
}

pointsman_sdk::export_policy!(Guest<Flood>: route);
