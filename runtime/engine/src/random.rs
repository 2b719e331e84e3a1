//! Random bits as a function: of a key and a counter, never of a state. Used by sampling and for policies' `rnd`.
//!
//! The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), once over
//! the key so that neighbouring keys share nothing, and once over the counter's place in that key's sequence.

/// 2^64 divided by the golden ratio: the step of SplitMix64's sequence.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The `index`-th 64 bits under `key`.
#[must_use]
pub fn bits(key: u64, index: u64) -> u64 {
    finalise(finalise(key.wrapping_add(STEP)).wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
}

/// The `index`-th number under `key`, uniform in [0, 1) with 53 bits.
#[must_use]
pub fn unit(key: u64, index: u64) -> f64 {
    (bits(key, index) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

fn finalise(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finaliser_is_the_published_one() {
        // The first two outputs of SplitMix64 seeded with 0.
        assert_eq!(finalise(STEP), 0xe220_a839_7b1d_cdaf);
        assert_eq!(finalise(STEP.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn units_are_uniform_over_counters_and_over_keys() {
        let flat = |draw: &dyn Fn(u64) -> f64| {
            let mut counts = [0_u32; 16];
            for i in 0..16_000 {
                counts[(draw(i) * 16.0) as usize] += 1;
            }
            // Chi-square with 15 degrees of freedom: 37.7 is exceeded once in a thousand.
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
            assert!(chi < 37.7, "{chi} {counts:?}");
        };
        flat(&|i| unit(7, i));
        flat(&|i| unit(i, 0));
        flat(&|i| unit(i, i));
    }
}
