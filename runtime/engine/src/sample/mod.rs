//! From a row of logits to the next token.
//!
//! The order, each step on the result of the one before:
//! 1. `adjust`: repetition penalty, presence and frequency penalties, logit bias, and stop tokens masked while there are
//!    fewer than `min_new_tokens`.
//! 2. Temperature 0: the most likely token, the lowest id on ties, and that is all. Otherwise logits are divided by it.
//! 3. `choose`: top-k, then top-p among what is left, then min-p, and a draw among the survivors.
//!
//! Log-probs are those of the model: of the row as it came, before step 1.
//!
//! A token depends on the request, its seed, the index of the token and the row, and on nothing else: random numbers are
//! a function of seed and index ([`crate::random`]), sums are taken in one fixed order, and the exponential is our own, so
//! that choices do not depend on a system's library. Values that are not finite are never chosen; a row that has no other
//! fails the request. Called by `line::sequence` for each row that returns.

mod adjust;
mod choose;
mod rank;
mod weight;

use crate::ids::TokenId;
use crate::output::Logprob;
use crate::random;
use crate::request::Request;
use crate::sample::adjust::Tally;
use crate::sample::rank::Ranked;

/// A row without any finite value: the device failed, or everything was masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token can be chosen: the device returned no finite logit, or every token was masked")]
pub struct NoFiniteLogit;

/// Buffers for one row, kept between rows for their memory. Its contents carry nothing from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    adjusted: Vec<f32>,
    work: Work,
}

/// What remains of a [`Scratch`] while its adjusted row is read.
#[derive(Debug, Default)]
struct Work {
    /// The row without infinities.
    finite: Vec<f32>,
    /// What top-k kept, by id, and its values.
    kept: Vec<Ranked>,
    values: Vec<f32>,
    weights: Vec<f32>,
    /// Sums of weights of about the same size.
    classes: Vec<f64>,
    ranked: Vec<Ranked>,
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The token.
    pub id: TokenId,
    /// Its log-prob, if the request asked for it.
    pub logprob: Option<Logprob>,
}

/// Draws one request's tokens, one after another.
#[derive(Debug)]
pub struct Sampler {
    /// Tokens drawn so far.
    drawn: u32,
    tally: Tally,
}

impl Sampler {
    /// At the first new token of `request`.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        Self { drawn: 0, tally: Tally::new(request) }
    }

    /// Draws the next token of `request` (the one this was made for) from its row of logits.
    ///
    /// # Errors
    /// No token can be chosen.
    pub fn next(&mut self, request: &Request, row: &[f32], scratch: &mut Scratch) -> Result<Drawn, NoFiniteLogit> {
        let (raw, Scratch { adjusted, work }) = (request.raw(), scratch);
        let row_to_draw = if self.tally.adjust(raw, self.drawn, row, adjusted) { adjusted } else { row };
        let id = if raw.sampling.is_greedy() {
            rank::finite(row_to_draw, &mut work.finite)?.1.id
        } else {
            let unit = random::unit(raw.sampling.seed, u64::from(self.drawn));
            choose::choose(row_to_draw, &raw.sampling, unit, work)?
        };
        let logprob = raw.logprobs.map(|top| logprob_with(row, id, top, work)).transpose()?;
        self.drawn += 1;
        self.tally.count(id);
        Ok(Drawn { id, logprob })
    }
}

/// The log-softmax of `row` at `token`, and the `top` best tokens, best first and by id on ties.
///
/// A value that is not finite has the log-prob minus infinity and is not among the best.
///
/// # Errors
/// The row has no finite value.
pub fn logprob(row: &[f32], token: TokenId, top: u32, scratch: &mut Scratch) -> Result<Logprob, NoFiniteLogit> {
    logprob_with(row, token, top, &mut scratch.work)
}

fn logprob_with(row: &[f32], token: TokenId, top: u32, work: &mut Work) -> Result<Logprob, NoFiniteLogit> {
    let Work { finite, weights, ranked, .. } = work;
    let (row, peak) = rank::finite(row, finite)?;
    weight::weigh(row, peak.value, 1.0, weights);
    let log_total = weight::sum(weights).ln();
    // In 64 bits, so that close alternatives stay apart.
    let of = |value: f32| (f64::from(value) - f64::from(peak.value) - log_total) as f32;
    let chosen = row.get(token as usize).map_or(f32::NEG_INFINITY, |&value| of(value));
    rank::best(row, top as usize, ranked);
    ranked.sort_unstable_by_key(Ranked::key);
    let top = ranked.iter().map(|ranked| (ranked.id, of(ranked.value))).collect();
    Ok(Logprob { chosen: if chosen.is_nan() { f32::NEG_INFINITY } else { chosen }, top })
}

#[cfg(test)]
mod tests;
