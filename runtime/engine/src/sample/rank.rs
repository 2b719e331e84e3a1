//! The best values of a row: by value, the lowest id first on ties. Values that are not finite have no rank.

use crate::ids::TokenId;
use crate::sample::NoFiniteLogit;

/// Values that are compared with a threshold before any is looked at.
const BLOCK: usize = 64;

/// A token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ranked {
    pub id: TokenId,
    pub value: f32,
}

impl Ranked {
    /// Ascends from better to worse, as an integer because that sorts several times faster. The value is not NaN.
    pub fn key(&self) -> u64 {
        // Floating-point numbers of one sign are ordered like their bits; adding 0 turns -0 into 0.
        let bits = (self.value + 0.0).to_bits();
        let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        u64::from(!ascending) << 32 | u64::from(self.id)
    }
}

/// The row, or a copy in `buffer` without the infinities that a device should not return, and its best token.
pub(super) fn finite<'a>(row: &'a [f32], buffer: &'a mut Vec<f32>) -> Result<(&'a [f32], Ranked), NoFiniteLogit> {
    let mut peak = peak(row);
    let mut row = row;
    if peak.value == f32::INFINITY {
        buffer.clear();
        buffer.extend(row.iter().map(|&value| if value.is_finite() { value } else { f32::NEG_INFINITY }));
        row = buffer;
        peak = self::peak(row);
    }
    if peak.value == f32::NEG_INFINITY { Err(NoFiniteLogit) } else { Ok((row, peak)) }
}

/// The best token in one pass; minus infinity if the row has nothing above it.
fn peak(row: &[f32]) -> Ranked {
    let (mut first, mut best) = (0, f32::NEG_INFINITY);
    for (index, block) in row.chunks(16 * BLOCK).enumerate() {
        let max = maximum(block);
        if max > best {
            (first, best) = (index * 16 * BLOCK, max);
        }
    }
    let offset = row[first..].iter().position(|&value| value == best).unwrap_or(0);
    Ranked { id: (first + offset) as TokenId, value: best }
}

/// The largest value that is not NaN. In lanes, which compilers turn into vector instructions.
fn maximum(block: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (groups, rest) = block.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for group in groups {
        for (lane, &value) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, value);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

/// The `count` best tokens, in no order: `out` collects candidates above a threshold, and whenever it holds twice as many
/// as needed the worse half goes and the threshold rises.
pub(super) fn best(row: &[f32], count: usize, out: &mut Vec<Ranked>) {
    out.clear();
    if count == 0 {
        return;
    }
    let full = count.saturating_mul(2).max(BLOCK);
    let mut above = f32::NEG_INFINITY;
    for (index, block) in row.chunks(BLOCK).enumerate() {
        // Without a branch for each value; most blocks hold no candidate.
        if block.iter().filter(|&&value| value > above).count() == 0 {
            continue;
        }
        for (offset, &value) in block.iter().enumerate() {
            // Equal values come later, with higher ids, and so rank below.
            if value > above {
                out.push(Ranked { id: (index * BLOCK + offset) as TokenId, value });
            }
            if out.len() >= full {
                keep_best(out, count);
                above = out[count - 1].value;
            }
        }
    }
    keep_best(out, count);
}

/// Drops all but the `count` best; the worst of them is last.
fn keep_best(candidates: &mut Vec<Ranked>, count: usize) {
    if candidates.len() > count {
        candidates.select_nth_unstable_by_key(count - 1, Ranked::key);
        candidates.truncate(count);
    }
}
