//! Sends everything to the first chain while it has room, and lets the others idle.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::{Cluster, Decision, Request};

struct First;

impl Hostile for First {
    const NAME: &'static str = "always-first";

    fn pick(_nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        match cluster.chains().first() {
            Some(chain) if cluster.queued() == 0 && chain.fits(ask.reserve) => Decision::Dispatch(chain.id()),
            _ => Decision::Queue,
        }
    }
}

pointsman_sdk::export_policy!(Guest<First>: route);
