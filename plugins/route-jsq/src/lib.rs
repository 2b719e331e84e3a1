//! Join the shortest queue: a request goes to the chain that runs the fewest jobs.
//!
//! Decides exactly as the host's builtin does, so that either can stand in for the other. Chains differ in speed only
//! through the places that they have; a policy that weighs service times is another one.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, InitError, Overlap, Policy, Request, RoutePolicy, no_knobs};

/// The policy. It needs no memory of its own: the SDK's view is enough.
pub struct Jsq;

impl Policy for Jsq {
    const NAME: &str = "route-jsq";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl RoutePolicy for Jsq {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them: a small request must not overtake for ever.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        let shortest = cluster.best_fit(ask.reserve, Chain::busy);
        shortest.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// The jobs of each chain that fits.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let considered = cluster.chains().iter().filter(|chain| cluster.queued() == 0 && chain.fits(ask.reserve));
        considered.map(|chain| Candidate { chain: chain.id(), score: chain.busy().into() }).collect()
    }
}

pointsman_sdk::export_policy!(Jsq: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{ChainId, Event};

    fn jsq(chains: &[(u32, u32)]) -> Harness<Jsq> {
        Harness::new("", cluster(chains)).unwrap()
    }

    #[test]
    fn takes_the_chain_with_the_fewest_jobs_and_of_equals_the_first() {
        let mut policy = jsq(&[(4, 100), (4, 100), (4, 100)]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
        policy.busy(0, 2);
        policy.busy(1, 1);
        policy.busy(2, 1);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.busy(2, 0);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = jsq(&[(4, 5), (1, 100), (4, 100), (9, 100)]);
        policy.busy(1, 1);
        policy.event(Event::Open(ChainId(2), false));
        policy.busy(3, 8);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        policy.busy(3, 9);
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        assert_eq!(policy.pick(&request(5)), Decision::Dispatch(ChainId(0)));
    }

    #[test]
    fn the_lowest_score_is_the_choice() {
        let mut policy = jsq(&[(4, 100), (4, 100), (4, 5)]);
        policy.busy(0, 2);
        let scores = policy.trace(&request(10), &[]);
        let expected = [(0, 2.0), (1, 0.0)].map(|(chain, score)| Candidate { chain: ChainId(chain), score });
        assert_eq!(scores, expected);
        policy.event(Event::Queued(1));
        assert_eq!(policy.trace(&request(10), &[]), []);
    }

    #[test]
    fn newcomers_wait_behind_those_who_wait() {
        let mut policy = jsq(&[(4, 100)]);
        policy.event(Event::Queued(1));
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
    }

    #[test]
    fn room_goes_to_the_first_that_fits() {
        let mut policy = jsq(&[(4, 50)]);
        let window = [waiting(1, 60), waiting(2, 50), waiting(3, 1)];
        assert_eq!(policy.pull(0, &window), Some(1));
        assert_eq!(policy.pull(0, &window[..1]), None);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Jsq>::new("{\"d\": 2}", cluster(&[])).is_err());
    }
}
