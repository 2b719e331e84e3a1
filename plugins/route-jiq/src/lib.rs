//! Join an idle chain: a request goes to a chain that runs nothing, drawn at random; when there is none, to any chain
//! that can take it.
//!
//! The dice are `ask.rnd` and nothing else, so that a replay draws the same chains.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, InitError, Overlap, Request, RoutePolicy, no_knobs};

/// The policy. It needs no memory of its own: the SDK's view is enough.
pub struct Jiq;

/// The chains among which `ask` is drawn: the idle ones if there are any, else all that fit.
fn choices<'a>(ask: &Request, cluster: &'a Cluster) -> impl Iterator<Item = &'a Chain> + Clone + use<'a> {
    let reserve = ask.reserve;
    let fitting = cluster.chains().iter().filter(move |chain| chain.fits(reserve));
    let some_idle = fitting.clone().any(|chain| chain.busy() == 0);
    fitting.filter(move |chain| chain.busy() == 0 || !some_idle)
}

/// One of `choices`, each as likely as the others: `rnd` as a fraction of its range, times their number.
fn draw<'a>(mut choices: impl Iterator<Item = &'a Chain> + Clone, rnd: u64) -> Option<&'a Chain> {
    let many = choices.clone().count() as u128;
    choices.nth(((u128::from(rnd) * many) >> 64) as usize)
}

impl RoutePolicy for Jiq {
    const NAME: &str = "route-jiq";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        let drawn = draw(choices(ask, cluster), ask.rnd);
        drawn.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// 0 for the chain that is drawn, 1 for the others that could have been.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        if cluster.queued() > 0 {
            return Vec::new();
        }
        let drawn = draw(choices(ask, cluster), ask.rnd).map(Chain::id);
        let score = |chain: &Chain| if Some(chain.id()) == drawn { 0.0 } else { 1.0 };
        choices(ask, cluster).map(|chain| Candidate { chain: chain.id(), score: score(chain) }).collect()
    }
}

pointsman_sdk::export_route!(Jiq);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{ChainId, Event};

    fn jiq(chains: &[(u32, u32)]) -> Harness<Jiq> {
        Harness::new("", cluster(chains)).unwrap()
    }

    /// The chain taken with the dice at `sixteenths` of their range.
    fn pick(policy: &mut Harness<Jiq>, reserve: u32, sixteenths: u64) -> Option<u32> {
        match policy.pick(&Request { rnd: sixteenths << 60, ..request(reserve) }) {
            Decision::Dispatch(chain) => Some(chain.0),
            _ => None,
        }
    }

    #[test]
    fn draws_among_the_idle() {
        let mut policy = jiq(&[(4, 100); 5]);
        policy.busy(1, 1);
        policy.busy(4, 4);
        let drawn: Vec<_> = (0..16).filter_map(|at| pick(&mut policy, 10, at)).collect();
        assert_eq!(drawn, [0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
        assert_eq!(policy.pick(&Request { rnd: u64::MAX, ..request(10) }), Decision::Dispatch(ChainId(3)));
        assert_eq!(policy.pick(&Request { rnd: 0, ..request(10) }), Decision::Dispatch(ChainId(0)));
    }

    #[test]
    fn an_idle_chain_must_be_able_to_take_it() {
        let mut policy = jiq(&[(4, 9), (4, 100), (0, 100), (4, 100)]);
        policy.event(Event::Open(ChainId(1), false));
        policy.busy(3, 3);
        assert_eq!(pick(&mut policy, 10, 0), Some(3));
        assert_eq!(pick(&mut policy, 9, 15), Some(0));
    }

    #[test]
    fn draws_among_all_that_fit_when_none_is_idle() {
        let mut policy = jiq(&[(4, 100), (4, 100), (1, 100), (u32::MAX, 100)]);
        for (chain, jobs) in [(0, 3), (1, 1), (2, 1), (3, u32::MAX - 1)] {
            policy.busy(chain, jobs);
        }
        let drawn: Vec<_> = [0, 5, 6, 10, 11, 15].map(|at| pick(&mut policy, 10, at)).to_vec();
        assert_eq!(drawn, [Some(0), Some(0), Some(1), Some(1), Some(3), Some(3)]);
        for (chain, jobs) in [(0, 4), (1, 4), (3, u32::MAX)] {
            policy.busy(chain, jobs);
        }
        assert_eq!(pick(&mut policy, 10, 7), None);
    }

    #[test]
    fn newcomers_wait_and_room_goes_to_the_first_that_fits() {
        let mut policy = jiq(&[(4, 100)]);
        policy.event(Event::Queued(1));
        assert_eq!(pick(&mut policy, 10, 0), None);
        assert_eq!(policy.trace(&request(10), &[]), []);
        assert_eq!(policy.pull(0, &[waiting(1, 101), waiting(2, 100)]), Some(1));
    }

    #[test]
    fn the_trace_replays_the_draw() {
        let mut policy = jiq(&[(4, 100); 4]);
        policy.busy(0, 1);
        for at in 0..16 {
            let ask = Request { rnd: at << 60, ..request(10) };
            let named = policy.trace(&ask, &[]);
            assert_eq!(named.iter().map(|it| it.chain.0).collect::<Vec<_>>(), [1, 2, 3]);
            let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
            assert_eq!(policy.pick(&ask), Decision::Dispatch(best.chain));
        }
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Jiq>::new("{\"d\": 2}", cluster(&[])).is_err());
    }
}
