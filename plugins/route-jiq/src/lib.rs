//! Join an idle chain: a request goes to a chain that runs nothing, drawn at random; when there is none, to any chain
//! that can take it.
//!
//! The dice are `ask.rnd` and nothing else, so that a replay draws the same chains. Drawing is counting and then finding
//! the one that is drawn. What an idle chain has room for is kept ready, in a list of its own, so that counting looks at
//! one number a chain, and at none while no chain is idle.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, Event, InitError};
use pointsman_sdk::{Overlap, Policy, Request, RoutePolicy, no_knobs};

/// Items that are counted in one turn of a loop, without a branch: a guest pays for every turn.
const GROUP: usize = 8;

/// The policy. It keeps which chains are idle.
pub struct Jiq {
    /// [`idle_room`] of each chain, in the cluster's order.
    rooms: Vec<u64>,
    /// How many of them are not 0.
    idle: usize,
}

/// One more than the most tokens that a job may reserve on this chain, 0 unless it is idle and can take one.
fn idle_room(chain: &Chain) -> u64 {
    if chain.busy() == 0 && chain.fits(0) { u64::from(chain.free_tokens()) + 1 } else { 0 }
}

/// How many items are so.
fn count<T>(items: &[T], is_so: impl Fn(&T) -> bool) -> usize {
    let many = |items: &[T]| items.iter().filter(|item| is_so(item)).count();
    let (groups, rest) = items.as_chunks::<GROUP>();
    groups.iter().map(|group| many(group)).sum::<usize>() + many(rest)
}

/// One of the `many` items that are so, each as likely as the others: `rnd` as a fraction of its range, times their
/// number, of them before it.
fn draw<T>(items: &[T], many: usize, rnd: u64, is_so: impl Fn(&T) -> bool) -> Option<usize> {
    let mut before = ((u128::from(rnd) * many as u128) >> 64) as usize;
    let mut from = 0;
    // Groups before its own are only counted.
    for group in items.as_chunks::<GROUP>().0 {
        let here = group.iter().filter(|item| is_so(item)).count();
        if before < here {
            break;
        }
        (before, from) = (before - here, from + GROUP);
    }
    let mut rest = items.iter().enumerate().skip(from).filter(|(_, item)| is_so(item));
    rest.nth(before).map(|(at, _)| at)
}

impl Jiq {
    /// The chain that is drawn: an idle one if there are any that fit, else one of all that fit.
    fn drawn<'a>(&self, ask: &Request, cluster: &'a Cluster) -> Option<&'a Chain> {
        let fits_idle = |&room: &u64| u64::from(ask.reserve) < room;
        let idle = if self.idle > 0 { count(&self.rooms, fits_idle) } else { 0 };
        let at = if idle > 0 {
            draw(&self.rooms, idle, ask.rnd, fits_idle)
        } else {
            let fits = |chain: &Chain| chain.fits(ask.reserve);
            draw(cluster.chains(), count(cluster.chains(), fits), ask.rnd, fits)
        };
        cluster.chains().get(at?)
    }
}

impl Policy for Jiq {
    const NAME: &str = "route-jiq";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config)?;
        let rooms: Vec<u64> = cluster.chains().iter().map(idle_room).collect();
        Ok(Self { idle: count(&rooms, |&room| room > 0), rooms })
    }
}

impl RoutePolicy for Jiq {
    fn on_event(&mut self, event: Event, cluster: &Cluster) {
        let (Event::Busy(id, _) | Event::FreeTokens(id, _) | Event::Open(id, _)) = event else { return };
        let Some(at) = cluster.position(id) else { return };
        if let (Some(chain), Some(room)) = (cluster.chains().get(at), self.rooms.get_mut(at)) {
            let was_idle = usize::from(*room > 0);
            *room = idle_room(chain);
            self.idle = self.idle + usize::from(*room > 0) - was_idle;
        }
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        self.drawn(ask, cluster).map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// 0 for the chain that is drawn, 1 for the others that could have been.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        if cluster.queued() > 0 {
            return Vec::new();
        }
        let drawn = self.drawn(ask, cluster).map(Chain::id);
        let score = |chain: &Chain| if Some(chain.id()) == drawn { 0.0 } else { 1.0 };
        let fitting = || cluster.chains().iter().filter(|chain| chain.fits(ask.reserve));
        let some_idle = fitting().any(|chain| chain.busy() == 0);
        let choices = fitting().filter(|chain| chain.busy() == 0 || !some_idle);
        choices.map(|chain| Candidate { chain: chain.id(), score: score(chain) }).collect()
    }
}

pointsman_sdk::export_policy!(Jiq: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::ChainId;
    use pointsman_sdk::testing::{Harness, cluster, history, request, sparse, waiting};

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

    #[test]
    fn what_is_kept_of_idle_chains_never_goes_stale() {
        let mut policy = Harness::<Jiq>::new("", sparse(21)).unwrap();
        history(21, |rnd, event| match event {
            Some(event) => policy.event(event),
            None => {
                let ask = Request { rnd, ..request((rnd % 100) as u32) };
                let named = policy.trace(&ask, &[]);
                let drawn = (u128::from(rnd) * named.len() as u128) >> 64;
                let drawn = named.get(drawn as usize).map_or(Decision::Queue, |it| Decision::Dispatch(it.chain));
                assert_eq!(policy.pick(&ask), drawn);
            }
        });
        // With no idle chain at all, and with all of them again.
        for (jobs, named) in [(1, 21), (0, 21), (4, 0)] {
            for at in 0..21 {
                policy.event(Event::Open(ChainId(at * 3), true));
                policy.event(Event::FreeTokens(ChainId(at * 3), 100));
                policy.busy(at * 3, jobs);
            }
            assert_eq!(policy.trace(&request(10), &[]).len(), named);
            let last = policy.pick(&Request { rnd: u64::MAX, ..request(10) });
            assert_eq!(last, if named > 0 { Decision::Dispatch(ChainId(60)) } else { Decision::Queue });
        }
    }
}
