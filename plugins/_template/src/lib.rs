//! The smallest honest policy, and a tour of the API. Copy this folder and change `pick`.
//!
//! What a policy may rely on:
//! 1. `init` comes first, once, with the whole cluster. Return an error to refuse a configuration: nothing is swapped then.
//! 2. Before every question the SDK folds the host's events into `cluster`; what you read there is current.
//! 3. `pick` is asked once for each new request, `pull` whenever a chain has room and requests wait.
//! 4. The host checks each answer. One that can not be followed (a chain that is full, closed or unknown) costs you a
//!    fault, and the builtin decides that request; it can not harm anything else.
//!
//! What a policy can not have: a clock (use `ask.now`), randomness (use `ask.rnd`), files, sockets, threads. Its budget is
//! about 100 µs and 16 MiB; `pointsman_sdk::log` sends a line to the operator, and so does a panic before it ends you.

use pointsman_sdk::{
    Candidate, Cluster, Decision, Event, InitError, Overlap, Policy, Pull, Request, RoutePolicy, Waiting, no_knobs,
};

/// First fit: the first chain, by id, that can take the request.
///
/// State that you keep between calls goes into this struct; keep what `pick` needs ready, so that it need not search.
pub struct FirstFit;

impl Policy for FirstFit {
    const NAME: &str = "policy-template";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Reads the configuration and makes the policy. One with settings parses `config` here and refuses unknown keys.
    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl RoutePolicy for FirstFit {
    /// The one decision that you must make. `ask.reserve` tokens are reserved for the request on the chain that you name.
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        match cluster.chains().iter().find(|chain| chain.fits(ask.reserve)) {
            Some(chain) => Decision::Dispatch(chain.id()),
            None => Decision::Queue,
        }
    }

    /// Optional; this is what the default does. `waiting` is in order of arrival, and the answer is an index into it.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        let chain = cluster.chain(ask.chain)?;
        waiting.iter().position(|request| chain.fits(request.reserve))
    }

    /// Optional: keep an index of your own up to date. A policy that only reads `cluster` leaves this away.
    fn on_event(&mut self, event: Event, _cluster: &Cluster) {
        match event {
            Event::Busy(_chain, _jobs) => {}
            Event::FreeTokens(_chain, _tokens) => {}
            Event::Queued(_requests) => {}
            Event::Service(_chain, _micros) => {}
            Event::Open(_chain, _takes_jobs) => {}
            // Kinds to come.
            _ => {}
        }
    }

    /// Optional, for people: what each chain that you considered was worth, the lowest being the best. Never on the live path.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let fitting = cluster.chains().iter().filter(|chain| chain.fits(ask.reserve));
        fitting.map(|chain| Candidate { chain: chain.id(), score: chain.id().0.into() }).collect()
    }
    // Also optional: `STATE_SCHEMA`, `save` and `restore` hand state over to the next version; route-round-robin does. `NEEDS` and
    // `pick_affine` tell you what each chain holds of the prompt; route-cache-aware does. `METRICS` declares figures of your own
    // for the server's metrics, which `count` and `gauge` write; `dump` shows your state.
}

pointsman_sdk::export_policy!(FirstFit: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::ChainId;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};

    #[test]
    fn takes_the_first_chain_that_fits() {
        // Two chains with 1 place each, the first with room for 50 tokens, the second for 100.
        let mut policy = Harness::<FirstFit>::new("", cluster(&[(1, 50), (1, 100)])).unwrap();
        assert_eq!(policy.pick(&request(50)), Decision::Dispatch(ChainId(0)));
        assert_eq!(policy.pick(&request(51)), Decision::Dispatch(ChainId(1)));
        policy.busy(1, 1);
        assert_eq!(policy.pick(&request(51)), Decision::Queue);
        assert_eq!(policy.pull(0, &[waiting(7, 51), waiting(8, 50)]), Some(1));
    }
}
