//! Least recently used: the cached prefixes that have not been used for longest are given up first.
//!
//! Decides exactly as the host's builtin does, so that either can stand in for the other.

use pointsman_sdk::{CachePolicy, Cluster, Evict, Idle, InitError, Policy, no_knobs};

/// The policy. It needs no memory of its own: the window is in this order already.
pub struct Lru;

impl Policy for Lru {
    const NAME: &str = "cache-lru";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl CachePolicy for Lru {
    fn victims(&mut self, ask: &Evict, idle: &[Idle], victims: &mut Vec<u32>) {
        // Each end frees a block at least, so that as many as blocks are needed will do.
        victims.extend((0..ask.need_blocks.max(1)).take(idle.len()));
    }
}

pointsman_sdk::export_policy!(Lru: cache);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster};

    fn lru() -> Harness<Lru> {
        Harness::new("", cluster(&[(4, 100)])).unwrap()
    }

    fn window(ends: u64) -> Vec<Idle> {
        (0..ends).map(|at| Idle { tenant: 1, depth: 16, last_use: at, hits: 100 - at }).collect()
    }

    #[test]
    fn the_first_of_the_window_go() {
        assert_eq!(lru().victims(1, &window(3)), [0]);
        assert_eq!(lru().victims(2, &window(3)), [0, 1]);
        assert_eq!(lru().victims(3, &window(3)), [0, 1, 2]);
        assert_eq!(lru().victims(64, &window(64)), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn all_of_them_where_more_is_needed() {
        assert_eq!(lru().victims(4, &window(3)), [0, 1, 2]);
        assert_eq!(lru().victims(u32::MAX, &window(64)).len(), 64);
    }

    #[test]
    fn one_at_least() {
        assert_eq!(lru().victims(0, &window(3)), [0]);
        assert!(lru().victims(0, &[]).is_empty(), "of nothing nothing");
    }

    #[test]
    fn a_second_answer_does_not_repeat_the_first() {
        let mut policy = lru();
        assert_eq!(policy.victims(3, &window(3)).len(), 3);
        assert_eq!(policy.victims(1, &window(2)), [0]);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Lru>::new("{\"even_depth\": 2}", cluster(&[])).is_err());
    }
}
