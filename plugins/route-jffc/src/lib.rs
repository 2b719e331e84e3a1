//! Join the fastest free chain: a request goes to the chain with the smallest service time that can take it.
//!
//! The rule of Algorithm 3 in arXiv:2604.14993, with one central queue: nobody is bound to a chain before it has room.
//! A chain whose service time is not known yet counts as the fastest, so that it is tried.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, InitError, Overlap, Policy, Request, RoutePolicy, no_knobs};

/// The policy. It needs no memory of its own: the SDK's view is enough.
pub struct Jffc;

impl Policy for Jffc {
    const NAME: &str = "route-jffc";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl RoutePolicy for Jffc {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them: the queue is the one FIFO of the rule.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        // An unknown service time is 0 and so the smallest.
        let fastest = cluster.best_fit(ask.reserve, Chain::service);
        fastest.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// The service time in microseconds; of equal scores the first named is taken.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        if cluster.queued() > 0 {
            return Vec::new();
        }
        let fitting = cluster.chains().iter().filter(|chain| chain.fits(ask.reserve));
        fitting.map(|chain| Candidate { chain: chain.id(), score: chain.service() as f64 }).collect()
    }
}

pointsman_sdk::export_policy!(Jffc: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{ChainId, Event};

    /// Chains for 4 jobs and 100 tokens with these service times.
    fn jffc(services: &[u64]) -> Harness<Jffc> {
        let mut policy = Harness::new("", cluster(&vec![(4, 100); services.len()])).unwrap();
        for (id, &service) in (0..).zip(services) {
            policy.event(Event::Service(ChainId(id), service));
        }
        policy
    }

    #[test]
    fn takes_the_fastest_and_of_equals_the_first() {
        let mut policy = jffc(&[30, 20, 10, 10]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
        // However many jobs it runs, as long as it has a place.
        policy.busy(2, 3);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
        policy.busy(2, 4);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        policy.busy(3, 4);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
    }

    #[test]
    fn tries_a_chain_of_which_nothing_is_known() {
        let mut policy = jffc(&[10, 0, 1, 0]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.event(Event::Service(ChainId(1), 5));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        policy.event(Event::Service(ChainId(3), u64::MAX));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = jffc(&[1, 2, 3, u64::MAX]);
        policy.event(Event::FreeTokens(ChainId(0), 9));
        policy.event(Event::Open(ChainId(1), false));
        policy.busy(2, u32::MAX);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        assert_eq!(policy.pick(&request(9)), Decision::Dispatch(ChainId(0)));
        policy.busy(3, 4);
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        assert_eq!(policy.pick(&request(u32::MAX)), Decision::Queue);
    }

    #[test]
    fn the_queue_is_a_fifo() {
        let mut policy = jffc(&[10]);
        policy.event(Event::FreeTokens(ChainId(0), 50));
        policy.event(Event::Queued(3));
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        let window = [waiting(1, 60), waiting(2, 50), waiting(3, 1)];
        assert_eq!(policy.pull(0, &window), Some(1));
        assert_eq!(policy.pull(0, &window[..1]), None);
    }

    /// Golden vector V6: chains of mean 1 s and 2 s, one place each; jobs (arrival, size) = (0, 2) (0.5, 1) (1, 1)
    /// (1.2, 0.5) (5, 1). The responses must be 2.0, 2.0, 2.0, 2.3 and 1.0 s.
    #[test]
    fn replays_golden_vector_v6() {
        let mut policy: Harness<Jffc> = Harness::new("", cluster(&[(1, 100), (1, 100)])).unwrap();
        policy.event(Event::Service(ChainId(0), 1_000_000));
        policy.event(Event::Service(ChainId(1), 2_000_000));
        // All in ms: the end of a job of `size` thousandths that starts on a chain.
        let end = |chain: usize, start: u64, size: u64| start + size * [1, 2][chain];

        // 0.0: job 1 finds both free.
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
        policy.busy(0, 1);
        let first = end(0, 0, 2000);
        // 0.5: job 2 finds the slow chain free.
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.busy(1, 1);
        let second = end(1, 500, 1000);
        // 1.0 and 1.2: jobs 3 and 4 find nothing.
        for queued in [1, 2] {
            assert_eq!(policy.pick(&request(10)), Decision::Queue);
            policy.event(Event::Queued(queued));
        }
        // Job 1 ends: job 3, the first in the queue, takes the fast chain.
        policy.busy(0, 0);
        assert_eq!(policy.pull(0, &[waiting(3, 10), waiting(4, 10)]), Some(0));
        policy.busy(0, 1);
        policy.event(Event::Queued(1));
        let third = end(0, first, 1000);
        // Job 2 ends before job 3: job 4 takes the slow chain.
        assert!(second < third);
        policy.busy(1, 0);
        assert_eq!(policy.pull(1, &[waiting(4, 10)]), Some(0));
        policy.busy(1, 1);
        policy.event(Event::Queued(0));
        let fourth = end(1, second, 500);
        // All end; 5.0: job 5 finds both free.
        policy.busy(0, 0);
        policy.busy(1, 0);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
        let fifth = end(0, 5000, 1000);

        let responses = [first, second - 500, third - 1000, fourth - 1200, fifth - 5000];
        assert_eq!(responses, [2000, 2000, 2000, 2300, 1000]);
    }

    #[test]
    fn the_lowest_score_is_the_chain_taken() {
        let mut policy = jffc(&[30, 20, 10, 5]);
        policy.busy(3, 4);
        let named: Vec<_> = policy.trace(&request(10), &[]).iter().map(|it| (it.chain.0, it.score)).collect();
        assert_eq!(named, [(0, 30.0), (1, 20.0), (2, 10.0)]);
        policy.event(Event::Queued(1));
        assert_eq!(policy.trace(&request(10), &[]), []);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Jffc>::new("{\"d\": 2}", cluster(&[])).is_err());
    }
}
