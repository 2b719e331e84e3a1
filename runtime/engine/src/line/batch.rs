//! What runs in the next micro-batch of a chain: continuous batching with chunked prefill.
//!
//! 1. Sequences that wait to decode, those that have waited longest first: all of them on a chain of one stage; on more
//!    stages a share, so that there is work for every stage.
//! 2. Pieces of prompts within a token budget ([`crate::Prefill`]), in order of dispatch: the first prompt takes what it
//!    can, so that it gets its first token soon, the next ones fill the budget up. Prompts whose log-probs are reported
//!    share a smaller budget of their own.
//!
//! A stage computes each row by itself, so none of this changes what a sequence generates.

use crate::config::Prefill;
use crate::ids::ChainId;
use crate::line::pipeline::{Part, Step};
use crate::line::sequence::{Phase, Sequence};
use crate::line::{Line, Slot};
use crate::port::{Logits, SeqSlice, StepPlan};

impl Line {
    /// The next micro-batch, which is then in flight; `None` if the pipeline is full or nothing waits.
    pub fn plan(&mut self, chain: ChainId) -> Option<StepPlan> {
        if !self.pipeline.has_room() || self.ready().next().is_none() {
            return None;
        }
        let decoding = self.decode.len() + self.pipeline.steps().map(decodes).sum::<usize>();
        let share = decoding.div_ceil(self.pipeline.stages()).min(self.decode.len());
        let size = share + self.prefill.len();
        let (mut slices, mut parts) = (Vec::with_capacity(size), Vec::with_capacity(size));
        for _ in 0..share {
            let Some(slot) = self.decode.pop_front() else { break };
            self.cut(slot, u32::MAX, &mut slices, &mut parts);
        }
        let Prefill { alone_tokens, beside_decode_tokens, scored_tokens: mut scored } = self.settings;
        let mut budget = if decoding > 0 { beside_decode_tokens } else { alone_tokens };
        while let Some(first) = self.prefill.first_entry() {
            let scores = self.slots[*first.get() as usize].as_ref().is_some_and(Sequence::scores_prompt);
            let allowed = if scores { budget.min(scored) } else { budget };
            if allowed == 0 {
                break;
            }
            let slot = first.remove();
            let tokens = self.cut(slot, allowed, &mut slices, &mut parts);
            budget -= tokens;
            scored -= if scores { tokens } else { 0 };
        }
        let batch = self.pipeline.start(parts);
        Some(StepPlan { chain, batch, slices })
    }

    /// Cuts a sequence's next slice of at most `budget` tokens, and returns its length.
    fn cut(&mut self, slot: Slot, budget: u32, slices: &mut Vec<SeqSlice>, parts: &mut Vec<Part>) -> u32 {
        let Some(sequence) = &mut self.slots[slot as usize] else { return 0 };
        let decodes = !sequence.in_prompt();
        let scored = sequence.scores_prompt() && !decodes;
        let pending = sequence.pending();
        let tokens = pending.min(budget);
        let logits = match (scored, tokens == pending) {
            (true, _) => Logits::All,
            (false, true) => Logits::Last,
            (false, false) => Logits::None,
        };
        sequence.phase = Phase::InFlight;
        slices.push(sequence.slice(tokens, logits));
        parts.push(Part { slot, tokens, logits, decodes });
        tokens
    }
}

fn decodes(step: &Step) -> usize {
    step.parts.iter().filter(|part| part.decodes).count()
}
