//! Shortest expected delay: a request goes to the chain where it is expected to be done first, given what runs there.
//!
//! A chain with room starts a job at once, but its jobs share it: the more run, the longer each takes. The host
//! measures the time of a whole job, which has the load of that moment in it. So this policy notes the load beside each
//! measured time and expects, after joining,
//!
//! ```text
//! delay = service * (busy + 1) / load
//! ```
//!
//! with `load` the jobs that ran when `service` was measured, smoothed as the host smooths the time. A chain whose time
//! is not known yet counts as faster than any other, so that it is tried; of several, the one with the fewest jobs.
//!
//! A delay changes only with an event about its chain, so each is kept ready as one number, and `pick` compares one
//! number a chain. Whether a chain can take the request is looked at only where its delay would win.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, Event, InitError, Micros};
use pointsman_sdk::{Overlap, Policy, Request, RoutePolicy, no_knobs};

/// Loads are kept in fractions of a job.
const JOB: u64 = 1 << 8;
/// Times are kept in fractions of a microsecond.
const MICRO: u128 = 1 << 8;
/// Stands for every delay from here on, two thousand years: those are told apart at length.
const FAR: u64 = u64::MAX - 1;

/// Keys that `pick` compares in one turn of its loop.
const GROUP: usize = 8;

/// What is known of one chain's speed.
#[derive(Clone, Copy)]
struct Speed {
    service: Micros,
    /// Jobs that ran when `service` was measured, in units of 1 / [`JOB`]; 0 when it never was. At most 2^40.
    load: u64,
    /// What each job on the chain adds to the time of all, in units of 1 / [`MICRO`]. Kept ready because a division of
    /// 128 bits is slow in WebAssembly.
    per_job: u64,
}

impl Speed {
    fn new(service: Micros, load: u64) -> Self {
        let per_job = match (u128::from(service) * MICRO * u128::from(JOB)).checked_div(load.into()) {
            // The least that a known time comes to is more than an unknown one.
            Some(time) => u64::try_from(time.max(2)).unwrap_or(u64::MAX),
            None => 1,
        };
        Self { service, load, per_job }
    }

    /// Folds in a measured time, at which `jobs` ran, with a weight of 1/8. A time of 0 is none.
    fn note(self, service: Micros, jobs: u32) -> Self {
        let jobs = u64::from(jobs.max(1)) * JOB;
        let load = match (service, self.load) {
            (0, _) => 0,
            (_, 0) => jobs,
            (_, load) => (load * 7 + jobs) / 8,
        };
        Self::new(service, load)
    }

    /// The delay of a job that joins `busy` others, in units of 1 / [`MICRO`].
    fn delay(self, busy: u32) -> u128 {
        u128::from(self.per_job) * (u128::from(busy) + 1)
    }

    /// [`Self::delay`], at most [`FAR`].
    fn key(self, busy: u32) -> u64 {
        self.per_job.saturating_mul(u64::from(busy) + 1).min(FAR)
    }
}

/// The policy. Its state is what each chain's time was measured at, in the order of the cluster's chains.
pub struct Sed {
    epoch: u64,
    speeds: Vec<Speed>,
    /// [`Speed::key`] of each chain as it is now; empty until the next `pick` makes them all.
    keys: Vec<u64>,
}

impl Sed {
    /// The first of the smallest keys whose chain can take `reserve` tokens, and its chain.
    fn lowest_key<'a>(&self, reserve: u32, cluster: &'a Cluster) -> Option<(&'a Chain, u64)> {
        // Above every key.
        let (mut best, mut lowest) = (None, u64::MAX);
        let mut consider = |at: usize, key: u64| {
            // The key first: on most chains that comparison alone settles it.
            if key < lowest
                && let Some(chain) = cluster.chains().get(at)
                && chain.fits(reserve)
            {
                (best, lowest) = (Some(chain), key);
            }
        };
        // In groups, so that the compiler unrolls: a guest pays for every turn of a loop.
        let (groups, rest) = self.keys.as_chunks::<GROUP>();
        for (group, keys) in groups.iter().enumerate() {
            keys.iter().enumerate().for_each(|(at, &key)| consider(group * GROUP + at, key));
        }
        rest.iter().enumerate().for_each(|(at, &key)| consider(groups.len() * GROUP + at, key));
        best.map(|chain| (chain, lowest))
    }

    /// The chains that can take `reserve` tokens, with the delay of a job that joins, in units of 1 / [`MICRO`].
    fn delays<'a>(&'a self, reserve: u32, cluster: &'a Cluster) -> impl Iterator<Item = (&'a Chain, u128)> {
        let fitting = cluster.chains().iter().zip(&self.speeds).filter(move |(chain, _)| chain.fits(reserve));
        fitting.map(|(chain, speed)| (chain, speed.delay(chain.busy())))
    }
}

impl Policy for Sed {
    const NAME: &str = "route-sed";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// The topology epoch, then the load of each chain in units of 1/256 job; eight bytes each, little-endian.
    const STATE_SCHEMA: &str = "route-sed/loads/1";

    fn init(config: &str, cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config)?;
        // The load at which a time was measured before this policy came is not known: that of now is the best guess.
        let guess = |chain: &Chain| Speed::new(0, 0).note(chain.service(), chain.busy());
        let speeds: Vec<Speed> = cluster.chains().iter().map(guess).collect();
        Ok(Self { epoch: cluster.epoch(), keys: Vec::with_capacity(speeds.len()), speeds })
    }

    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        let ours = schema == Self::STATE_SCHEMA && rest.is_empty() && words.next() == Some(self.epoch);
        if !ours || words.len() != self.speeds.len() {
            return;
        }
        for (speed, load) in self.speeds.iter_mut().zip(words) {
            // A load that this policy would not keep is passed over, and so is one of a chain whose time is not known.
            if speed.load > 0 && (JOB..=JOB << 32).contains(&load) {
                *speed = Speed::new(speed.service, load);
            }
        }
        self.keys.clear();
    }

    fn save(&self) -> Option<Vec<u8>> {
        let words = std::iter::once(self.epoch).chain(self.speeds.iter().map(|speed| speed.load));
        Some(words.flat_map(u64::to_le_bytes).collect())
    }
}

impl RoutePolicy for Sed {
    fn on_event(&mut self, event: Event, cluster: &Cluster) {
        let (Event::Service(id, _) | Event::Busy(id, _)) = event else { return };
        let Some(at) = cluster.position(id) else { return };
        let (Some(chain), Some(speed)) = (cluster.chains().get(at), self.speeds.get_mut(at)) else { return };
        if let Event::Service(_, service) = event {
            // The job that was measured has left already.
            *speed = speed.note(service, chain.busy().saturating_add(1).min(chain.capacity()));
        }
        if let Some(key) = self.keys.get_mut(at) {
            *key = speed.key(chain.busy());
        }
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        if self.keys.is_empty() {
            let known = cluster.chains().iter().zip(&self.speeds);
            self.keys.extend(known.map(|(chain, speed)| speed.key(chain.busy())));
        }
        // Of equals the first.
        let soonest = match self.lowest_key(ask.reserve, cluster) {
            Some((_, FAR)) => self.delays(ask.reserve, cluster).min_by_key(|&(_, delay)| delay).map(|(chain, _)| chain),
            found => found.map(|(chain, _)| chain),
        };
        soonest.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// The expected delay in microseconds; of equal scores the first named is taken.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        if cluster.queued() > 0 {
            return Vec::new();
        }
        let delays = self.delays(ask.reserve, cluster);
        delays.map(|(chain, delay)| Candidate { chain: chain.id(), score: delay as f64 / MICRO as f64 }).collect()
    }
}

pointsman_sdk::export_policy!(Sed: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, history, request, sparse, waiting};
    use pointsman_sdk::{ChainId, Saved};

    /// Chains of 100 tokens with these capacities, running jobs and service times.
    fn snapshot(chains: &[(u32, u32, u64)]) -> Cluster {
        let chain =
            |(id, &(capacity, busy, service))| Chain::new(ChainId(id), capacity, 100).with_state(busy, true, service);
        Cluster::new(1, 0, (0..).zip(chains).map(chain).collect(), 0)
    }

    fn sed(chains: &[(u32, u32, u64)]) -> Harness<Sed> {
        Harness::new("", snapshot(chains)).unwrap()
    }

    fn scores(policy: &Harness<Sed>) -> Vec<f64> {
        policy.trace(&request(10), &[]).iter().map(|it| it.score).collect()
    }

    #[test]
    fn weighs_the_time_by_the_jobs_that_would_share_it() {
        // Both measured with one job running.
        let mut policy = sed(&[(8, 0, 100), (8, 0, 250)]);
        assert_eq!(scores(&policy), [100.0, 250.0]);
        let mut taken = [0; 2];
        for _ in 0..7 {
            let Decision::Dispatch(chain) = policy.pick(&request(10)) else { panic!("all have room") };
            taken[chain.0 as usize] += 1;
            policy.busy(chain.0, taken[chain.0 as usize]);
        }
        // 100 200 (250) 300 400 500 (500): equals go to the first.
        assert_eq!(taken, [5, 2]);
    }

    #[test]
    fn a_time_measured_under_load_is_not_counted_twice() {
        let mut policy = sed(&[(8, 0, 0), (8, 0, 0)]);
        // Chain 0 took 400 for each of four jobs at once, chain 1 150 for a job that was alone.
        policy.busy(0, 3);
        policy.event(Event::Service(ChainId(0), 400));
        policy.event(Event::Service(ChainId(1), 150));
        assert_eq!(scores(&policy), [400.0, 150.0]);
        policy.busy(0, 0);
        assert_eq!(scores(&policy), [100.0, 150.0]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
        policy.busy(0, 1);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
    }

    #[test]
    fn the_load_is_smoothed_as_the_time_is() {
        let mut policy = sed(&[(32, 0, 800)]);
        // One job, and then one among nine: 1 + 8/8 = 2.
        policy.busy(0, 8);
        policy.event(Event::Service(ChainId(0), 1000));
        policy.busy(0, 0);
        assert_eq!(scores(&policy), [500.0]);
        // A chain that forgets its time forgets its load.
        policy.event(Event::Service(ChainId(0), 0));
        policy.event(Event::Service(ChainId(0), 1000));
        assert_eq!(scores(&policy), [1000.0]);
    }

    #[test]
    fn tries_chains_of_which_nothing_is_known_the_emptiest_first() {
        let mut policy = sed(&[(4, 0, 1), (4, 0, 0), (4, 0, 0)]);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.busy(1, 1);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
        policy.busy(2, 2);
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
        policy.event(Event::Service(ChainId(1), 1_000_000));
        policy.event(Event::Service(ChainId(2), 1_000_000));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = sed(&[(4, 0, 1), (4, 0, 2), (0, 0, 0), (4, 3, u64::MAX)]);
        policy.event(Event::FreeTokens(ChainId(0), 9));
        policy.event(Event::Open(ChainId(1), false));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(3)));
        assert_eq!(policy.pick(&request(9)), Decision::Dispatch(ChainId(0)));
        policy.busy(3, u32::MAX);
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let max = u32::MAX;
        let mut policy = sed(&[(max, max - 1, u64::MAX), (max, 0, u64::MAX), (max, max - 1, 1), (max, max - 1, 0)]);
        policy.busy(3, max);
        // Its time shared by so many is next to nothing, for one more job.
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
        for chain in 0..4 {
            policy.busy(chain, max);
            policy.event(Event::Service(ChainId(chain), u64::MAX));
        }
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        policy.busy(0, max - 1);
        policy.busy(1, max - 1);
        // 1 is taken to have been measured alone: its delay is the worst that can be.
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(0)));
        // Of an unknown chain nothing is kept.
        policy.event(Event::Service(ChainId(9), 1));
    }

    #[test]
    fn newcomers_wait_and_room_goes_to_the_first_that_fits() {
        let mut policy = sed(&[(4, 0, 10)]);
        policy.event(Event::Queued(1));
        assert_eq!(policy.pick(&request(10)), Decision::Queue);
        assert_eq!(scores(&policy), [0.0; 0]);
        assert_eq!(policy.pull(0, &[waiting(1, 101), waiting(2, 100)]), Some(1));
    }

    #[test]
    fn the_loads_survive_a_swap() {
        let mut old = sed(&[(8, 0, 0), (8, 0, 0)]);
        old.busy(0, 3);
        old.event(Event::Service(ChainId(0), 400));
        let saved = old.save().unwrap();
        let chains = [(8, 0, 400), (8, 0, 0)];
        let succeed = |saved: &Saved, snapshot| scores(&Harness::succeed("{}", snapshot, saved).unwrap());
        let (kept, guessed) = ([100.0, 1.0 / 256.0], [400.0, 1.0 / 256.0]);
        assert_eq!(succeed(&saved, snapshot(&chains)), kept);

        assert_eq!(succeed(&saved, snapshot(&chains[..1])), guessed[..1], "another number of chains");
        let view = snapshot(&chains);
        let later = Cluster::new(2, 0, view.chains().to_vec(), 0);
        assert_eq!(succeed(&saved, later), guessed, "another epoch");
        let foreign = Saved { schema: "other".to_owned(), ..saved.clone() };
        assert_eq!(succeed(&foreign, snapshot(&chains)), guessed);
        for bytes in [vec![], saved.bytes[..23].to_vec(), [&saved.bytes[..8], &[0; 16]].concat()] {
            assert_eq!(succeed(&Saved { bytes, ..saved.clone() }, snapshot(&chains)), guessed);
        }
        let absurd = Saved { bytes: [&saved.bytes[..8], &[0xff; 16]].concat(), ..saved };
        assert_eq!(succeed(&absurd, snapshot(&chains)), guessed);
    }

    #[test]
    fn the_lowest_score_is_the_chain_taken() {
        let mut policy = sed(&[(4, 1, 300), (4, 1, 100), (4, 4, 1), (4, 2, 500)]);
        let named = policy.trace(&request(10), &[]);
        let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(best.chain));
        assert_eq!(named.iter().map(|it| it.chain.0).collect::<Vec<_>>(), [0, 1, 3]);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Sed>::new("{\"d\": 2}", cluster(&[])).is_err());
    }

    #[test]
    fn the_keys_never_go_stale() {
        let mut policy = Harness::<Sed>::new("", sparse(21)).unwrap();
        history(21, |rnd, event| match event {
            Some(event) => policy.event(event),
            // A successor makes its keys from the saved loads.
            None if rnd % 64 == 0 => {
                let view = policy.cluster();
                let view = Cluster::new(view.epoch(), view.seq(), view.chains().to_vec(), 0);
                policy = Harness::succeed("", view, &policy.save().unwrap()).unwrap();
            }
            None => {
                let ask = request((rnd % 100) as u32);
                let named = policy.trace(&ask, &[]);
                let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score));
                let best = best.map_or(Decision::Queue, |best| Decision::Dispatch(best.chain));
                assert_eq!(policy.pick(&ask), best);
            }
        });
    }

    #[test]
    fn loads_that_are_restored_after_a_pick_count() {
        let mut old = sed(&[(8, 0, 0), (8, 0, 0)]);
        old.busy(0, 3);
        old.event(Event::Service(ChainId(0), 400));
        let saved = old.save().unwrap();
        let view = snapshot(&[(8, 0, 400), (8, 0, 150)]);
        let mut policy = Sed::init("", &view).unwrap();
        // Chain 0 was guessed to need 400 alone; it was measured among four.
        assert_eq!(policy.pick(&request(10), &view), Decision::Dispatch(ChainId(1)));
        policy.restore(&saved.schema, &saved.bytes);
        assert_eq!(policy.pick(&request(10), &view), Decision::Dispatch(ChainId(0)));
        // With a job more than that it is the slower one again.
        let later = snapshot(&[(8, 4, 400), (8, 0, 150)]);
        policy.on_event(Event::Busy(ChainId(0), 4), &later);
        assert_eq!(policy.pick(&request(10), &later), Decision::Dispatch(ChainId(1)));
    }

    #[test]
    fn the_longest_delays_are_told_apart() {
        let max = u32::MAX;
        let mut policy = sed(&[(max, 3, u64::MAX), (max, 2, u64::MAX), (max, 1, u64::MAX)]);
        for chain in 0..3 {
            policy.busy(chain, 0);
            policy.event(Event::Service(ChainId(chain), 0));
            policy.event(Event::Service(ChainId(chain), u64::MAX));
            policy.busy(chain, max - 1 - chain);
        }
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(2)));
        policy.event(Event::Open(ChainId(2), false));
        assert_eq!(policy.pick(&request(10)), Decision::Dispatch(ChainId(1)));
    }
}
