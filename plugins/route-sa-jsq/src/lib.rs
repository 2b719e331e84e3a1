//! Speed-aware join the shortest queue: a request goes to the chain that is the least full in proportion to its
//! capacity; of equally full ones, to the fastest.
//!
//! Fills are fractions and compared exactly. A chain whose service time is not known yet counts as the fastest, so that
//! it is tried.

use std::cmp::Ordering;

use pointsman_sdk::{
    Candidate, Chain, Cluster, Decision, InitError, Micros, Overlap, Policy, Request, RoutePolicy, no_knobs,
};

/// How full a chain is, and then how slow.
#[derive(Clone, Copy)]
struct Fill {
    busy: u32,
    capacity: u32,
    service: Micros,
}

impl Fill {
    fn of(chain: &Chain) -> Self {
        Self { busy: chain.busy(), capacity: chain.capacity(), service: chain.service() }
    }
}

impl PartialOrd for Fill {
    /// Defined for chains with a capacity, which those that can take a request have.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let here = u64::from(self.busy) * u64::from(other.capacity);
        let there = u64::from(other.busy) * u64::from(self.capacity);
        Some(here.cmp(&there).then(self.service.cmp(&other.service)))
    }
}

impl PartialEq for Fill {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

/// The policy. It needs no memory of its own: the SDK's view is enough.
pub struct SaJsq;

impl Policy for SaJsq {
    const NAME: &str = "route-sa-jsq";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl RoutePolicy for SaJsq {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        let emptiest = cluster.best_fit(ask.reserve, Fill::of);
        emptiest.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// The fill, and less than a billionth for the service time, which settles ties; of equal scores the first named is
    /// taken.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        if cluster.queued() > 0 {
            return Vec::new();
        }
        let fitting = || cluster.chains().iter().filter(|chain| chain.fits(ask.reserve));
        let slowest = fitting().map(Chain::service).max().unwrap_or(0).max(1) as f64;
        let score = |chain: &Chain| {
            let fill = f64::from(chain.busy()) / f64::from(chain.capacity());
            fill + chain.service() as f64 / slowest * 1e-9
        };
        fitting().map(|chain| Candidate { chain: chain.id(), score: score(chain) }).collect()
    }
}

pointsman_sdk::export_policy!(SaJsq: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{ChainId, Event};

    /// Chains of 100 tokens with these capacities, running jobs and service times.
    fn sa_jsq(chains: &[(u32, u32, u64)]) -> Harness<SaJsq> {
        let chain =
            |(id, &(capacity, busy, service))| Chain::new(ChainId(id), capacity, 100).with_state(busy, true, service);
        Harness::new("", Cluster::new(1, 0, (0..).zip(chains).map(chain).collect(), 0)).unwrap()
    }

    #[test]
    fn takes_the_least_full_in_proportion() {
        let mut policy = sa_jsq(&[(2, 1, 10), (8, 3, 10), (4, 2, 10)]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.busy(1, 5);
        policy.busy(2, 1);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
    }

    #[test]
    fn of_equally_full_chains_takes_the_fastest_and_then_the_first() {
        // Halves of different capacities are equal.
        let mut policy = sa_jsq(&[(2, 1, 30), (8, 4, 20), (6, 3, 20), (4, 2, 25)]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.event(Event::Service(ChainId(3), 0));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)), "an unknown time is tried");
        policy.busy(0, 0);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)), "the fill goes before the speed");
    }

    #[test]
    fn fills_are_compared_exactly() {
        let max = u32::MAX;
        // (max - 2) / (max - 1) is the smaller by less than a double can tell.
        let mut policy = sa_jsq(&[(max, max - 1, 1), (max - 1, max - 2, u64::MAX)]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = sa_jsq(&[(0, 0, 0), (4, 0, 1), (4, 0, 2), (4, 3, u64::MAX)]);
        policy.event(Event::FreeTokens(ChainId(1), 9));
        policy.event(Event::Open(ChainId(2), false));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        assert_eq!(policy.pick(&request(9)), Decision::Dispatch(ChainId(1)));
        policy.busy(3, u32::MAX);
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
    }

    #[test]
    fn newcomers_wait_and_room_goes_to_the_first_that_fits() {
        let mut policy = sa_jsq(&[(4, 0, 10)]);
        policy.event(Event::Queued(1));
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        assert_eq!(policy.trace(&request(10), &[]), []);
        assert_eq!(policy.pull(0, &[waiting(1, 101), waiting(2, 100)]), Some(1));
    }

    #[test]
    fn the_lowest_score_is_the_chain_taken() {
        let mut policy = sa_jsq(&[(2, 1, 3000), (8, 4, 2000), (4, 2, 1000), (4, 3, 1), (4, 4, 1)]);
        let named = policy.trace(&request(10), &[]);
        let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(best.chain));
        assert_eq!(named.iter().map(|it| it.chain.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!((named[3].score - 0.75).abs() < 1e-9);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<SaJsq>::new("{\"d\": 2}", cluster(&[])).is_err());
    }
}
