//! Softmax weights, their sum, and a draw among them: plain arithmetic in one fixed order, the same on every machine.

/// Values that are summed together before a draw looks at them one by one.
const BLOCK: usize = 1024;

/// Weights below e^-87 are 0: 32 bits hold no smaller normal number.
const SMALLEST: f32 = -87.0;

/// `exp((value - peak) / temperature)` of each value; 0 for what is not finite. `peak` is the largest value.
pub(super) fn weigh(row: &[f32], peak: f32, temperature: f32, out: &mut Vec<f32>) {
    out.clear();
    out.extend(row.iter().map(|&value| weight(value, peak, temperature)));
}

/// The weight of one value.
pub(super) fn weight(value: f32, peak: f32, temperature: f32) -> f32 {
    exp((value - peak) / temperature)
}

/// e^x for x <= 0, within 4 units in the last place; 0 below [`SMALLEST`] and for NaN. Branch-free, so that a row of them
/// becomes vector code.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, the first of few bits, so that the product with n is exact);
/// e^r by its Taylor series, 2^n by its exponent bits.
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const SERIES: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let series = SERIES.iter().fold(1.0 / 5040.0, |sum, &term| sum * r + term);
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    let power = f32::from_bits(exponent.wrapping_shl(23));
    if x >= SMALLEST { series * power } else { 0.0 }
}

/// The sum, in 64 bits.
pub(super) fn sum(weights: &[f32]) -> f64 {
    weights.chunks(BLOCK).map(block_sum).sum()
}

/// In lanes that are added up in a fixed order.
fn block_sum(block: &[f32]) -> f64 {
    let (groups, rest) = block.as_chunks::<8>();
    let mut lanes = [0.0_f64; 8];
    for group in groups {
        for (lane, &weight) in lanes.iter_mut().zip(group) {
            *lane += f64::from(weight);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&weight| f64::from(weight)).sum::<f64>()
}

/// The index whose share of the total contains `unit`, a number in [0, 1). At least one weight is above 0.
pub(super) fn draw(weights: &[f32], unit: f64) -> usize {
    let mut target = sum(weights) * unit;
    let mut last = 0;
    for (index, block) in weights.chunks(BLOCK).enumerate() {
        let total = block_sum(block);
        if target >= total {
            target -= total;
            // Rounding may leave nothing to find in the blocks to come.
            last = block.iter().rposition(|&weight| weight > 0.0).map_or(last, |offset| index * BLOCK + offset);
            continue;
        }
        for (offset, &weight) in block.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
            last = index * BLOCK + offset;
            target -= f64::from(weight);
            if target < 0.0 {
                return last;
            }
        }
        return last;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close_to_the_exact_one() {
        for step in 0..87_000_u32 {
            let x = -(step as f32) * 1e-3;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 4.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!([exp(-87.1), exp(-1e30), exp(f32::NEG_INFINITY), exp(f32::NAN)], [0.0; 4]);
    }

    #[test]
    fn draws_the_index_whose_share_holds_the_number() {
        let weights = [0.0, 1.0, 0.0, 2.0, 1.0, 0.0];
        let draws = [0.0, 0.24, 0.25, 0.74, 0.75, 0.999_999_9].map(|unit| draw(&weights, unit));
        assert_eq!(draws, [1, 1, 3, 3, 4, 4]);
        // Across blocks.
        let mut wide = vec![0.0; 3 * BLOCK];
        wide[5] = 1.0;
        wide[2 * BLOCK + 7] = 3.0;
        assert_eq!([0.0, 0.249, 0.25, 0.999].map(|unit| draw(&wide, unit)), [5, 5, 2 * BLOCK + 7, 2 * BLOCK + 7]);
    }
}
