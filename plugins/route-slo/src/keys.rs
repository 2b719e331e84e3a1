//! The chains in the order in which `pick` prefers them, one number each.
//!
//! Speed and estimate of a chain change only with an event about it, so both are kept ready in one number, its key: the
//! speed above the estimate. `lib.rs` makes the keys at `init` and tells of every event; `pick` compares one number a
//! chain. Whether a chain can take the request is looked at only where its key would win.
//!
//! A key has no room for an estimate of thousands of years. Once there is a chain with such a time, `Keys::are_exact` is
//! false for good, and `pick` compares ranks at length.

use pointsman_sdk::{Chain, Cluster, Event, Micros};

use super::{estimate, speed};

/// Bits of the estimate in a key; the speed, at most 64, has the seven above.
const ESTIMATE_BITS: u32 = 57;
/// The largest estimate that a key can hold, and the bits that it has there.
const ESTIMATE_MAX: Micros = (1 << ESTIMATE_BITS) - 1;
/// The least service time that is too long. On a chain that has room the estimate is below twice the service time.
const TOO_LONG: Micros = 1 << (ESTIMATE_BITS - 1);
/// Keys that are compared in one turn of a loop: a guest pays for every turn.
const GROUP: usize = 8;

/// The keys of all chains as they are now, in the cluster's order.
pub struct Keys {
    keys: Vec<u64>,
    are_exact: bool,
}

fn key(chain: &Chain) -> u64 {
    // More than fits is estimated only of chains that run more than they can, or of those that are too slow for a key.
    u64::from(speed(chain)) << ESTIMATE_BITS | estimate(chain).min(ESTIMATE_MAX)
}

impl Keys {
    /// Those of the chains as they are now.
    pub fn new(cluster: &Cluster) -> Self {
        let are_exact = cluster.chains().iter().all(|chain| chain.service() < TOO_LONG);
        Self { keys: cluster.chains().iter().map(key).collect(), are_exact }
    }

    /// Brings the key of the chain of this event up to date. `cluster` has the event already.
    pub fn update(&mut self, event: Event, cluster: &Cluster) {
        let (Event::Service(id, _) | Event::Busy(id, _)) = event else { return };
        let Some(at) = cluster.position(id) else { return };
        if let (Some(chain), Some(entry)) = (cluster.chains().get(at), self.keys.get_mut(at)) {
            *entry = key(chain);
            self.are_exact &= chain.service() < TOO_LONG;
        }
    }

    /// Whether [`Self::best`] can be relied on.
    pub fn are_exact(&self) -> bool {
        self.are_exact
    }

    /// Of the chains that can take `reserve` tokens, the slowest that are estimated to be done within `limit`, of them
    /// the one that is done first; when there is none, the one that is done first of all. Of equals the first.
    pub fn best<'a>(&self, reserve: u32, limit: Micros, cluster: &'a Cluster) -> Option<&'a Chain> {
        let estimate = |key| key & ESTIMATE_MAX;
        let chain = |at: usize| cluster.chains().get(at).filter(|chain| chain.fits(reserve));
        let sure = self.lowest(|key| key, |at, key| if estimate(key) <= limit { chain(at) } else { None });
        sure.or_else(|| self.lowest(estimate, |at, _| chain(at)))
    }

    /// What `take` makes of the place and the key with the smallest `rank`, the first of equals. `take` is asked only
    /// where the rank would win, and wins only if it gives something.
    fn lowest<T>(&self, rank: impl Fn(u64) -> u64, take: impl Fn(usize, u64) -> Option<T>) -> Option<T> {
        // Above every rank.
        let (mut best, mut lowest) = (None, u64::MAX);
        let mut consider = |at: usize, key: u64| {
            if rank(key) < lowest
                && let Some(taken) = take(at, key)
            {
                (best, lowest) = (Some(taken), rank(key));
            }
        };
        // In groups, so that the compiler unrolls.
        let (groups, rest) = self.keys.as_chunks::<GROUP>();
        for (group, keys) in groups.iter().enumerate() {
            keys.iter().enumerate().for_each(|(at, &key)| consider(group * GROUP + at, key));
        }
        rest.iter().enumerate().for_each(|(at, &key)| consider(groups.len() * GROUP + at, key));
        best
    }
}
