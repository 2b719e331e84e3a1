//! The smallest honest policy for the `cache` slot, and a tour of it. Copy this folder and change `victims`.
//!
//! What a policy may rely on:
//! 1. `victims` is asked when a request needs blocks and too few are free. What is offered is used by nobody: a bad choice is
//!    missed later, and no more.
//! 2. `idle` holds ends of cached prefixes, at most 64, the least recently used first. To give one up frees its last block and
//!    those before it that were left at the same moment and hit as often, as far as they are needed; then the host asks again if it must.
//! 3. Answer at least one index, none twice, none that is not in the window: else it is a fault, and the host takes the least
//!    recently used.
//!
//! What a policy can not have: a clock (use `ask.now`), randomness (use `ask.rnd`), files, sockets, threads.

use pointsman_sdk::{CachePolicy, Cluster, Evict, Format, Idle, InitError, NewSequence, Policy, no_knobs};

/// Gives up what has served nobody yet before anything else.
///
/// State that you keep between calls goes into this struct.
pub struct NeverHit;

impl Policy for NeverHit {
    const NAME: &str = "policy-template";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Reads the configuration and makes the policy. One with settings parses `config` here and refuses unknown keys.
    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
    // Also optional: `METRICS` declares figures of your own for the server's metrics, which `count` and `gauge` write.
}

impl CachePolicy for NeverHit {
    /// The one decision that you must make.
    fn victims(&mut self, ask: &Evict, idle: &[Idle], victims: &mut Vec<u32>) {
        let indices = |hit: bool| (0..).zip(idle).filter(move |(_, end)| (end.hits > 0) == hit).map(|(index, _)| index);
        victims.extend(indices(false).chain(indices(true)).take(ask.need_blocks.max(1) as usize));
    }

    /// Optional: the format of a new request's keys and values, where a chain offers several. The default takes the most precise.
    fn format(&mut self, _ask: &NewSequence, _offered: &[Format]) -> usize {
        0
    }
}

pointsman_sdk::export_policy!(NeverHit: cache);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::Harness;

    #[test]
    fn what_was_never_hit_goes_first() {
        let mut policy = Harness::<NeverHit>::new("", Cluster::new(1, 0, Vec::new(), 0)).unwrap();
        let idle = [3, 0, 1, 0].map(|hits| Idle { hits, ..Idle::default() });
        assert_eq!(policy.victims(3, &idle), [1, 3, 0]);
        assert_eq!(policy.victims(1, &idle), [1]);
    }
}
