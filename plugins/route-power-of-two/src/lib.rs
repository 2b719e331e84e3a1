//! Power of two choices: two chains are drawn at random, in proportion to the work that they can do, and the request
//! goes to the less full of the two.
//!
//! A chain's weight is its capacity times its rate, one over its service time; a chain of unknown time is given the
//! mean of the known ones. The dice are the two halves of `ask.rnd` and nothing else, so that a replay draws the same
//! chains.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, Event, InitError, Micros};
use pointsman_sdk::{Overlap, Policy, Request, RoutePolicy, no_knobs};

/// The policy. It keeps the weights, which change only when a service time does.
pub struct PowerOfTwo {
    /// One for each chain, in the cluster's order.
    weights: Vec<u64>,
    stale: bool,
}

/// The rate of the fastest chain; one that is 65,536 times slower has the least rate.
const RATE_MAX: u64 = 1 << 16;

/// Weighs all chains: capacity times rate.
fn weigh(cluster: &Cluster, weights: &mut Vec<u64>) {
    let known = cluster.chains().iter().map(Chain::service).filter(|&time| time > 0);
    let (mut sum, mut many, mut fastest) = (0_u128, 0, Micros::MAX);
    for time in known {
        (sum, many, fastest) = (sum + u128::from(time), many + 1, fastest.min(time));
    }
    let usual = sum.checked_div(many).and_then(|mean| Micros::try_from(mean).ok()).unwrap_or(fastest);
    // fastest * RATE_MAX / time without leaving 64 bits: what does not fit above is taken away below.
    let up = fastest.leading_zeros().min(16);
    weights.clear();
    weights.extend(cluster.chains().iter().map(|chain| {
        let time = if chain.service() == 0 { usual } else { chain.service() };
        let rate = (fastest << up) / (time >> (16 - up)).max(1);
        rate.clamp(1, RATE_MAX) * u64::from(chain.capacity())
    }));
}

/// Two different chains in the order of their draw; one when no other fits.
fn draw_two<'a>(ask: &Request, cluster: &'a Cluster, weights: &[u64]) -> Option<(&'a Chain, Option<&'a Chain>)> {
    // Whoever comes while others wait, waits behind them.
    if cluster.queued() > 0 {
        return None;
    }
    let chains = cluster.chains();
    let fits = |at: usize| chains[at].fits(ask.reserve);
    let weighed = chains.len().min(weights.len());
    let mut total = 0;
    for (at, weight) in weights.iter().enumerate().take(weighed) {
        if fits(at) {
            total += weight;
        }
    }
    // `rnd` is a fraction of 2^32.
    let draw = |total: u64, taken: usize, rnd: u64| {
        let mut left = ((u128::from(total) * u128::from(rnd)) >> 32) as u64;
        for (at, &weight) in weights.iter().enumerate().take(weighed) {
            if fits(at) && at != taken {
                if left < weight {
                    return Some(at);
                }
                left -= weight;
            }
        }
        None
    };
    let first = draw(total, usize::MAX, ask.rnd >> 32)?;
    let second = draw(total - weights[first], first, ask.rnd & 0xffff_ffff);
    Some((&chains[first], second.map(|at| &chains[at])))
}

fn is_less_full(this: &Chain, than: &Chain) -> bool {
    u64::from(this.busy()) * u64::from(than.capacity()) < u64::from(than.busy()) * u64::from(this.capacity())
}

impl Policy for PowerOfTwo {
    const NAME: &str = "route-power-of-two";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config)?;
        let mut weights = Vec::with_capacity(cluster.chains().len());
        weigh(cluster, &mut weights);
        Ok(Self { weights, stale: false })
    }
}

impl RoutePolicy for PowerOfTwo {
    fn on_event(&mut self, event: Event, _cluster: &Cluster) {
        self.stale |= matches!(event, Event::Service(..));
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        if self.stale {
            weigh(cluster, &mut self.weights);
            self.stale = false;
        }
        match draw_two(ask, cluster, &self.weights) {
            None => Decision::Queue,
            Some((first, Some(second))) if is_less_full(second, first) => Decision::Dispatch(second.id()),
            Some((first, _)) => Decision::Dispatch(first.id()),
        }
    }

    /// The fill of the two that are drawn, in the order of the draw; of equal scores the first named is taken.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let mut weights = Vec::new();
        weigh(cluster, &mut weights);
        let drawn = draw_two(ask, cluster, &weights).map(|(first, second)| [Some(first), second]);
        let fill = |chain: &Chain| f64::from(chain.busy()) / f64::from(chain.capacity());
        let drawn = drawn.into_iter().flatten().flatten();
        drawn.map(|chain| Candidate { chain: chain.id(), score: fill(chain) }).collect()
    }
}

pointsman_sdk::export_policy!(PowerOfTwo: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::ChainId;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};

    /// Chains of 100 tokens with these capacities, running jobs and service times.
    fn power_of_two(chains: &[(u32, u32, u64)]) -> Harness<PowerOfTwo> {
        let chain =
            |(id, &(capacity, busy, service))| Chain::new(ChainId(id), capacity, 100).with_state(busy, true, service);
        Harness::new("", Cluster::new(1, 0, (0..).zip(chains).map(chain).collect(), 0)).unwrap()
    }

    fn pick(policy: &mut Harness<PowerOfTwo>, rnd: u64) -> Option<u32> {
        match policy.pick(&Request { rnd, ..request(10) }) {
            Decision::Dispatch(chain) => Some(chain.0),
            _ => None,
        }
    }

    /// How often each of three chains is taken, as shares of many throws of a generator (SplitMix64).
    fn shares(chains: [(u32, u32, u64); 3]) -> [f64; 3] {
        const THROWS: u32 = 60_000;
        let mut policy = power_of_two(&chains);
        let (mut taken, mut state) = ([0; 3], 7_u64);
        for _ in 0..THROWS {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut rnd = state;
            rnd = (rnd ^ (rnd >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            rnd = (rnd ^ (rnd >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            taken[pick(&mut policy, rnd ^ (rnd >> 31)).unwrap() as usize] += 1;
        }
        taken.map(|times: u32| f64::from(times) / f64::from(THROWS))
    }

    #[track_caller]
    fn close(found: [f64; 3], wanted: [f64; 3]) {
        // More than five standard deviations of a share of 60,000 throws.
        let far = found.iter().zip(wanted).any(|(found, wanted)| (found - wanted).abs() > 0.011);
        assert!(!far, "{found:?}, not {wanted:?}");
    }

    #[test]
    fn the_first_draw_follows_capacity_times_rate() {
        // All equally full, so that the first drawn is taken. Weights 4 : 4 : 2.
        close(shares([(4, 0, 100), (8, 0, 200), (1, 0, 50)]), [0.4, 0.4, 0.2]);
        close(shares([(4, 2, 100), (8, 4, 200), (2, 1, 100)]), [0.4, 0.4, 0.2]);
        // The same far outside of 32 bits.
        let long = u64::MAX / 4;
        close(shares([(4, 0, long), (8, 0, 2 * long), (1, 0, long / 2)]), [0.4, 0.4, 0.2]);
    }

    #[test]
    fn the_second_draw_follows_the_weights_of_the_others() {
        // Chain 0 is the fuller: when it is drawn first (0.5), the second is taken, chain 1 or 2 as 3 : 2.
        close(shares([(5, 1, 100), (3, 0, 100), (2, 0, 100)]), [0.0, 0.3 + 0.5 * 0.6, 0.2 + 0.5 * 0.4]);
        // Chain 0 is the emptiest and chain 2 the fullest: 0 is taken whenever it is drawn, 1 when 0 is not.
        let second = 0.3 * 5.0 / 7.0 + 0.2 * 5.0 / 8.0;
        let (one, two) = (0.3 * 2.0 / 7.0, 0.2 * 3.0 / 8.0);
        close(shares([(5, 0, 100), (3, 1, 100), (2, 1, 100)]), [0.5 + second, one + two, 0.0]);
    }

    #[test]
    fn an_unknown_time_is_the_mean_of_the_known() {
        close(shares([(1, 0, 100), (1, 0, 0), (1, 0, 300)]), [6.0 / 11.0, 3.0 / 11.0, 2.0 / 11.0]);
        // None known: by capacity.
        close(shares([(5, 0, 0), (3, 0, 0), (2, 0, 0)]), [0.5, 0.3, 0.2]);
    }

    #[test]
    fn takes_the_less_full_of_the_two_and_of_equals_the_first_drawn() {
        let mut policy = power_of_two(&[(2, 1, 10), (4, 1, 10)]);
        for rnd in [0, u64::MAX, u64::MAX << 32, 0xffff_ffff] {
            assert_eq!(pick(&mut policy, rnd), Some(1));
        }
        policy.busy(1, 2);
        assert_eq!(pick(&mut policy, 0), Some(0));
        assert_eq!(pick(&mut policy, u64::MAX), Some(1));
        policy.busy(1, 3);
        assert_eq!(pick(&mut policy, u64::MAX), Some(0));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = power_of_two(&[(4, 0, 1), (4, 0, 1), (0, 0, 0), (4, 3, u64::MAX), (4, 4, 1)]);
        policy.event(Event::FreeTokens(ChainId(0), 9));
        policy.event(Event::Open(ChainId(1), false));
        for rnd in [0, 1 << 63, u64::MAX] {
            assert_eq!(pick(&mut policy, rnd), Some(3));
        }
        policy.busy(3, 4);
        assert_eq!(pick(&mut policy, 0), None);
    }

    #[test]
    fn extremes_neither_overflow_nor_lose_a_chain() {
        let max = u32::MAX;
        let mut policy = power_of_two(&[(max, max - 1, 1), (max, max - 1, u64::MAX), (1, 0, u64::MAX), (max, 0, 0)]);
        for step in 0..64 {
            assert!(pick(&mut policy, u64::MAX << step).is_some());
        }
        let mut policy = power_of_two(&[(max, 0, 1 << 33); 512]);
        assert_eq!([pick(&mut policy, 0), pick(&mut policy, u64::MAX)], [Some(0), Some(511)]);
        let mut policy = power_of_two(&[(1, 0, u64::MAX); 3]);
        assert_eq!([0, 1 << 63, u64::MAX].map(|rnd| pick(&mut policy, rnd)), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn newcomers_wait_and_room_goes_to_the_first_that_fits() {
        let mut policy = power_of_two(&[(4, 0, 10)]);
        policy.event(Event::Queued(1));
        assert_eq!(pick(&mut policy, 0), None);
        assert_eq!(policy.trace(&request(10), &[]), []);
        assert_eq!(policy.pull(0, &[waiting(1, 101), waiting(2, 100)]), Some(1));
    }

    #[test]
    fn the_trace_names_the_two_in_the_order_of_the_draw() {
        let mut policy = power_of_two(&[(4, 1, 10), (4, 1, 10), (4, 3, 10)]);
        for rnd in (0..64).map(|step| u64::MAX / 64 * step) {
            let ask = Request { rnd, ..request(10) };
            let named = policy.trace(&ask, &[]);
            assert!(named.len() == 2 && named[0].chain != named[1].chain);
            let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
            assert_eq!(policy.pick(&ask), Decision::Dispatch(best.chain));
        }
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<PowerOfTwo>::new("{\"d\": 2}", cluster(&[])).is_err());
    }
}
