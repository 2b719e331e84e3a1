//! Dispatches to a chain that does not exist.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::{ChainId, Cluster, Decision, Request};

struct Forged;

impl Hostile for Forged {
    const NAME: &'static str = "forged-chain";

    fn pick(_nth: u32, _ask: &Request, _cluster: &Cluster) -> Decision {
        Decision::Dispatch(ChainId(4_000_000_000))
    }
}

pointsman_sdk::export_policy!(Guest<Forged>: route);
