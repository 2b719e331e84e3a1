//! Cost aware: the cached prefixes that are cheapest to lose are given up first.
//!
//! In the spirit of GreedyDual-Size-Frequency (Cherkasova 1998): an end of a prefix is worth what it costs to compute
//! its last block again, times how often it was used, and that fades with the time since its last use.
//!
//! ```text
//! score = (hits + 1) * (even_depth + depth) / (FADE + age)
//! ```
//!
//! - A block costs a part that is the same for all, and attention to what stands before it, which grows with `depth`.
//!   At `even_depth` tokens the two are equal. All blocks are of one size, so the size of that algorithm drops out.
//! - `age` is the distance from the last use in the window that is the most recent. It takes the place of the clock
//!   of that algorithm: the window is all that this policy knows, and it keeps nothing between calls.

use pointsman_sdk::{CachePolicy, Cluster, Evict, Idle, InitError, Policy, knobs};

/// Room for the largest window.
const IDLE: usize = 64;
/// Age at which an end is worth half: sequences that have left the chain since. As many as a window has ends, so that
/// in a full one the oldest is worth about half of the newest.
const FADE: u64 = IDLE as u64;
/// Uses that count; more make no difference.
const HITS_MAX: u64 = 1 << 20;
/// Highest `even_depth`.
const EVEN_DEPTH_MAX: u64 = 1 << 20;
/// Bits after the point of a score.
const FRACTION: u32 = 10;

/// The highest score does not overflow.
const _: () = assert!((EVEN_DEPTH_MAX + u32::MAX as u64) <= (u64::MAX >> FRACTION) / HITS_MAX);

/// The policy.
pub struct CostAware {
    /// Depth, in tokens, at which attention to what stands before costs as much as all else.
    even_depth: u64,
    /// The window that is being looked at: score and index.
    order: Vec<(u64, u32)>,
}

/// What it costs to lose an end, in fractions that [`FRACTION`] gives.
fn score(even_depth: u64, newest: u64, end: &Idle) -> u64 {
    let uses = end.hits.saturating_add(1).min(HITS_MAX);
    let cost = even_depth + u64::from(end.depth);
    let age = newest.saturating_sub(end.last_use);
    ((uses * cost) << FRACTION) / FADE.saturating_add(age)
}

impl Policy for CostAware {
    const NAME: &str = "cache-cost-aware";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let even_depth = knobs(config, &["even_depth"])?.number("even_depth", 1..=EVEN_DEPTH_MAX, 16_384)?;
        Ok(Self { even_depth, order: Vec::with_capacity(IDLE) })
    }
}

impl CachePolicy for CostAware {
    fn victims(&mut self, ask: &Evict, idle: &[Idle], victims: &mut Vec<u32>) {
        let Self { even_depth, order } = self;
        let newest = idle.iter().map(|end| end.last_use).max().unwrap_or(0);
        order.clear();
        order.extend((0..).zip(idle).map(|(index, end)| (score(*even_depth, newest, end), index)));
        // Of equals the least recently used: the index is part of what is compared.
        order.sort_unstable();
        // Each end frees a block at least, so that as many as blocks are needed will do.
        let wanted = ask.need_blocks.max(1) as usize;
        victims.extend(order.iter().take(wanted).map(|&(_, index)| index));
    }
}

pointsman_sdk::export_policy!(CostAware: cache);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster};

    fn cost_aware(config: &str) -> Harness<CostAware> {
        Harness::new(config, cluster(&[(4, 100)])).unwrap()
    }

    fn end(depth: u32, last_use: u64, hits: u64) -> Idle {
        Idle { tenant: 0, depth, last_use, hits }
    }

    #[test]
    fn the_oldest_go_first_where_all_else_is_equal() {
        let window = [end(64, 3, 2), end(64, 8, 2), end(64, 9, 2)];
        assert_eq!(cost_aware("").victims(2, &window), [0, 1]);
        assert_eq!(cost_aware("").victims(3, &window), [0, 1, 2]);
    }

    #[test]
    fn what_is_used_often_stays() {
        let window = [end(64, 3, 9), end(64, 8, 0), end(64, 9, 2)];
        assert_eq!(cost_aware("").victims(3, &window), [1, 2, 0]);
    }

    #[test]
    fn what_is_deep_costs_more() {
        let window = [end(20_000, 5, 1), end(64, 5, 1), end(4000, 5, 1)];
        assert_eq!(cost_aware("").victims(3, &window), [1, 2, 0]);
        // At 16,384 tokens a block costs twice as much as at the beginning: as much as two uses instead of one.
        let even = [end(16_384, 5, 1), end(0, 5, 3)];
        assert_eq!(cost_aware("").victims(2, &even), [0, 1], "of equals the first");
        let deeper = [end(16_384, 5, 1), end(0, 5, 2)];
        assert_eq!(cost_aware("").victims(2, &deeper), [1, 0]);
        // Where attention counts for less, so does depth.
        assert_eq!(cost_aware("{\"even_depth\": 1048576}").victims(2, &deeper), [0, 1]);
        assert_eq!(cost_aware("{\"even_depth\": 1}").victims(2, &even), [1, 0]);
    }

    #[test]
    fn uses_fade_with_age() {
        // 64 others have left since: worth half.
        assert_eq!(cost_aware("").victims(1, &[end(64, 0, 1), end(64, 64, 0)]), [0], "of equals the first");
        assert_eq!(cost_aware("").victims(1, &[end(64, 1, 1), end(64, 64, 0)]), [1]);
        // Only the distance counts, not the clock.
        let long_ago = 1 << 60;
        assert_eq!(cost_aware("").victims(1, &[end(64, long_ago + 1, 1), end(64, long_ago + 64, 0)]), [1]);
        assert_eq!(cost_aware("").victims(1, &[end(64, 0, 1000), end(64, 1 << 20, 0)]), [0], "once often used");
    }

    #[test]
    fn equals_go_in_the_order_of_the_window() {
        assert_eq!(cost_aware("").victims(5, &[end(64, 7, 1); 5]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn one_at_least_and_no_more_than_needed() {
        let mut policy = cost_aware("");
        let window: Vec<Idle> = (0..64).map(|at| end(16, at, 0)).collect();
        assert_eq!(policy.victims(0, &window).len(), 1);
        assert_eq!(policy.victims(7, &window).len(), 7);
        assert_eq!(policy.victims(u32::MAX, &window).len(), 64);
        assert_eq!(policy.victims(u32::MAX, &window[..1]), [0]);
        assert!(policy.victims(3, &[]).is_empty(), "of nothing nothing");
    }

    #[test]
    fn names_none_twice_whatever_the_values() {
        let extremes = [0, 1, 63, u64::from(u32::MAX), 1 << 40, u64::MAX - 1, u64::MAX];
        let mut window = Vec::new();
        for (last_use, hits) in extremes.iter().flat_map(|a| extremes.iter().map(move |b| (*a, *b))) {
            window.push(end(if window.len() % 2 == 0 { 0 } else { u32::MAX }, last_use, hits));
        }
        for config in ["{\"even_depth\": 1}", "{}", "{\"even_depth\": 1048576}"] {
            let mut named = cost_aware(config).victims(64, &window);
            named.sort_unstable();
            assert_eq!(named, (0..window.len() as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_highest_score_is_one_number() {
        let best = score(EVEN_DEPTH_MAX, u64::MAX, &end(u32::MAX, u64::MAX, u64::MAX));
        assert_eq!(best, ((EVEN_DEPTH_MAX + u64::from(u32::MAX)) << 30) / 64);
        assert_eq!(score(1, u64::MAX, &end(0, 0, 0)), 0);
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let refused =
            |config: &str| Harness::<CostAware>::new(config, cluster(&[])).map(|_| ()).unwrap_err().to_string();
        for value in ["0", "1048577", "false"] {
            let why = refused(&format!("{{\"even_depth\": {value}}}"));
            assert!(why.contains("\"even_depth\" must be a whole number from 1 to 1048576"), "{why}");
        }
        assert!(refused("{\"depth\": 5}").contains("unknown setting \"depth\"; there are: even_depth"));
    }
}
