//! Refuses every request.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::{Cluster, Decision, Request};

struct Reject;

impl Hostile for Reject {
    const NAME: &'static str = "always-reject";

    fn pick(_nth: u32, _ask: &Request, _cluster: &Cluster) -> Decision {
        Decision::Reject(418)
    }
}

pointsman_sdk::export_policy!(Guest<Reject>: route);
