//! A draw among the tokens that the filters leave.
//!
//! Each filter keeps the best so many tokens of those before it; none needs them sorted:
//! - top-k keeps the k best, and only those are looked at any further;
//! - top-p keeps the fewest best whose weights reach p of the total of what top-k left;
//! - min-p keeps those whose weight is at least that fraction of the best one's.
//!
//! The survivors lie side by side in the order of their ids, each as wide as its weight, and the random number points at
//! one of them.

use crate::ids::TokenId;
use crate::request::Sampling;
use crate::sample::rank::{self, Ranked};
use crate::sample::{NoFiniteLogit, Work, weight};

/// Bits of a weight that do not tell its class: the sign, the exponent and 5 bits of the fraction do.
const CLASS_SHIFT: u32 = 18;

/// Draws a token; `unit` is in [0, 1).
pub(super) fn choose(row: &[f32], s: &Sampling, unit: f64, work: &mut Work) -> Result<TokenId, NoFiniteLogit> {
    let Work { finite, kept, values, weights, classes, ranked } = work;
    let (mut row, peak) = rank::finite(row, finite)?;
    let cut = s.top_k > 0 && (s.top_k as usize) < row.len();
    if cut {
        rank::best(row, s.top_k as usize, kept);
        kept.sort_unstable_by_key(|kept| kept.id);
        values.clear();
        values.extend(kept.iter().map(|kept| kept.value));
        row = values;
    }
    weight::weigh(row, peak.value, s.temperature, weights);
    if s.top_p < 1.0 {
        keep_nucleus(row, weights, f64::from(s.top_p), classes, ranked);
    }
    if s.min_p > 0.0 {
        // The best token's weight is 1.
        weights.iter_mut().for_each(|weight| *weight = if *weight >= s.min_p { *weight } else { 0.0 });
    }
    let index = weight::draw(weights, unit);
    Ok(if cut { kept[index].id } else { index as TokenId })
}

/// Sets all weights to 0 but those of the fewest best values whose weights reach `p` of the total.
///
/// In linear time: the weights are added up by classes of about the same weight, and only the class in which `p` is
/// reached is sorted.
fn keep_nucleus(row: &[f32], weights: &mut [f32], p: f64, classes: &mut Vec<f64>, ranked: &mut Vec<Ranked>) {
    // No weight is above 1.
    let heaviest = 1.0_f32.to_bits() >> CLASS_SHIFT;
    let class = |weight: f32| (weight.to_bits() >> CLASS_SHIFT).min(heaviest) as usize;
    classes.clear();
    classes.resize(heaviest as usize + 1, 0.0);
    weights.iter().for_each(|&weight| classes[class(weight)] += f64::from(weight));
    let target = p * classes.iter().rev().sum::<f64>();
    let (mut border, mut reached) = (heaviest as usize, 0.0);
    while border > 0 && reached + classes[border] < target {
        reached += classes[border];
        border -= 1;
    }
    let candidates = (0..).zip(row).zip(&*weights).filter(|&(_, &weight)| class(weight) == border);
    ranked.clear();
    ranked.extend(candidates.map(|((id, &value), _)| Ranked { id, value }));
    ranked.sort_unstable_by_key(Ranked::key);
    let lightest = f32::from_bits((border as u32) << CLASS_SHIFT);
    weights.iter_mut().for_each(|weight| *weight = if *weight >= lightest { *weight } else { 0.0 });
    for beyond in ranked {
        let weight = &mut weights[beyond.id as usize];
        if reached >= target {
            *weight = 0.0;
        }
        reached += f64::from(*weight);
    }
}
