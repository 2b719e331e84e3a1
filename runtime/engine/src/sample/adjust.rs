//! What a request adds to its logits before anything is drawn, and the counts that this needs.

use std::collections::BTreeMap;

use crate::ids::TokenId;
use crate::request::{RawRequest, Request};

/// How often each token was generated; tokens of the prompt alone count 0. Empty if no penalty is on.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Option<BTreeMap<TokenId, u32>>,
}

impl Tally {
    pub fn new(request: &Request) -> Self {
        let raw = request.raw();
        let s = &raw.sampling;
        let repetition = s.repetition_penalty != 1.0;
        let wanted = repetition || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
        let seen: &[TokenId] = if repetition { &raw.prompt } else { &[] };
        Self { counts: wanted.then(|| seen.iter().map(|&token| (token, 0)).collect()) }
    }

    /// A token was generated.
    pub fn count(&mut self, token: TokenId) {
        if let Some(counts) = &mut self.counts {
            *counts.entry(token).or_default() += 1;
        }
    }

    /// Writes the adjusted row into `out` and returns true, or returns false if the row stays as it is. `drawn` tokens
    /// were generated so far.
    pub fn adjust(&self, raw: &RawRequest, drawn: u32, row: &[f32], out: &mut Vec<f32>) -> bool {
        let masked = drawn < raw.min_new_tokens && !raw.stop_tokens.is_empty();
        if self.counts.is_none() && raw.sampling.logit_bias.is_empty() && !masked {
            return false;
        }
        out.clear();
        out.extend_from_slice(row);
        let mut edit = |token: TokenId, change: &dyn Fn(f32) -> f32| {
            if let Some(value) = out.get_mut(token as usize) {
                *value = change(*value);
            }
        };
        let s = &raw.sampling;
        for (&token, &count) in self.counts.iter().flatten() {
            let presence = if count > 0 { s.presence_penalty } else { 0.0 };
            let subtract = presence + s.frequency_penalty * count as f32;
            edit(token, &|value| {
                let repeated = if value > 0.0 { value / s.repetition_penalty } else { value * s.repetition_penalty };
                repeated - subtract
            });
        }
        for &(token, bias) in &s.logit_bias {
            edit(token, &|value| value + bias);
        }
        if masked {
            raw.stop_tokens.iter().for_each(|&token| edit(token, &|_| f32::NEG_INFINITY));
        }
        true
    }
}
