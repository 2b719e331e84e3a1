//! What runs in the next micro-batch of a chain: continuous batching with chunked prefill.
//!
//! 1. Sequences that wait to decode, those that have waited longest first: all of them on a chain of one stage; on more
//!    stages a share, so that there is work for every stage.
//! 2. Pieces of prompts within a token budget ([`crate::Prefill`]), in order of dispatch: the first prompt takes what it
//!    can, so that it gets its first token soon, the next ones fill the budget up. Prompts whose log-probs are reported
//!    share a smaller budget of their own.
//!
//! A policy's [`Order`]s change who comes first in each group, and who is left out; a sequence that has been passed over
//! [`PASSED_MAX`] times in a row goes before all of them. A stage computes each row by itself, so none of this changes what a
//! sequence generates.

use crate::config::Prefill;
use crate::ids::{ChainId, Micros, RequestId};
use crate::limits::PASSED_MAX;
use crate::line::pipeline::{Part, Step};
use crate::line::sequence::{Phase, Sequence};
use crate::line::{Line, Slot};
use crate::port::{Logits, SeqSlice, StepPlan};
use crate::window::{Order, Ready};

/// A micro-batch, and what was done for those who had waited too long.
pub(crate) struct Planned {
    /// None if everything is held back.
    pub plan: Option<StepPlan>,
    /// Sequences that went first because they had been passed over for too long.
    pub passed_over: u64,
    /// One of them that was to be held back again.
    pub held_too_long: Option<RequestId>,
}

/// A sequence whose turn it is.
struct Turn {
    slot: Slot,
    /// Most tokens that it may run.
    most: u32,
    /// Its place in the usual order.
    usual: usize,
    /// Whether it goes first because it has been passed over for too long.
    due: bool,
    /// Whether it was to be held back all the same.
    held: bool,
}

/// What became of a sequence in a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was left out.
    Left,
    /// It was left out because a policy held it back.
    Held,
    /// It ran fewer tokens than there was room for.
    Part,
    /// It ran as many tokens as it could.
    Full,
}

impl Line {
    /// Whether another micro-batch could be started now.
    pub fn wants_plan(&self) -> bool {
        self.pipeline.has_room() && self.ready().next().is_some()
    }

    /// What a policy may choose from.
    pub fn window(&self, now: Micros) -> impl Iterator<Item = Ready> {
        self.ready().filter_map(move |slot| Some(self.slots[slot as usize].as_ref()?.facts(now)))
    }

    /// Tokens of prompts that the next micro-batch may hold.
    pub fn token_budget(&self) -> u32 {
        let Prefill { alone_tokens, beside_decode_tokens, .. } = self.settings;
        if self.decoding() > 0 { beside_decode_tokens } else { alone_tokens }
    }

    /// Sequences that decode, in flight or not.
    fn decoding(&self) -> usize {
        self.decode.len() + self.pipeline.steps().map(decodes).sum::<usize>()
    }

    /// The next micro-batch, which is then in flight. [`Self::wants_plan`] has been asked; the indices in `orders` are those of
    /// [`Self::window`], none twice.
    pub fn plan(&mut self, chain: ChainId, orders: &[Order]) -> Planned {
        let mut planned = Planned { plan: None, passed_over: 0, held_too_long: None };
        let ready: Vec<Slot> = self.ready().collect();
        let mut fates = vec![Fate::Left; ready.len()];
        let turns = self.turns(&ready, orders, &mut fates);
        let share = self.decoding().div_ceil(self.pipeline.stages());
        let (mut budget, mut scored) = (self.token_budget(), self.settings.scored_tokens);
        let (mut slices, mut parts) = (Vec::with_capacity(turns.len()), Vec::with_capacity(turns.len()));
        for turn in turns {
            let Some(sequence) = &self.slots[turn.slot as usize] else { continue };
            let (id, scores, pending) = (sequence.id, sequence.scores_prompt(), sequence.pending());
            let allowed = match sequence.in_prompt() {
                false if parts.len() < share => 1,
                false => continue,
                true if scores => budget.min(scored),
                true => budget,
            };
            if allowed == 0 {
                break;
            }
            let part = self.cut(turn.slot, allowed.min(turn.most), &mut slices);
            if !part.decodes {
                budget -= part.tokens;
                scored -= if scores { part.tokens } else { 0 };
            }
            fates[turn.usual] = if part.tokens == pending.min(allowed) { Fate::Full } else { Fate::Part };
            parts.push(part);
            planned.passed_over += u64::from(turn.due);
            if turn.held {
                planned.held_too_long = Some(id);
            }
        }
        if parts.is_empty() {
            return planned;
        }
        self.note_passed(&ready, &fates);
        let slots = &self.slots;
        self.decode.retain(|&slot| slots[slot as usize].as_ref().is_some_and(|it| it.phase == Phase::Ready));
        let batch = self.pipeline.start(parts);
        planned.plan = Some(StepPlan { chain, batch, slices });
        planned
    }

    /// Who is next: those that have been passed over for too long, those that a policy names, the others in turn; without those
    /// that it holds back, whose fate is noted. Those that decode come before prompts.
    fn turns(&self, ready: &[Slot], orders: &[Order], fates: &mut [Fate]) -> Vec<Turn> {
        let sequence = |slot: Slot| self.slots[slot as usize].as_ref();
        let is_due = |slot| sequence(slot).is_some_and(|sequence| sequence.passed >= PASSED_MAX);
        let mut turns: Vec<Turn> = (0..)
            .zip(ready)
            .filter(|(_, slot)| is_due(**slot))
            .map(|(usual, slot)| Turn { slot: *slot, most: u32::MAX, usual, due: true, held: false })
            .collect();
        let mut left: Vec<bool> = ready.iter().map(|slot| !is_due(*slot)).collect();
        for order in orders {
            let (Order::Run { index, .. } | Order::Hold(index)) = *order;
            let usual = index as usize;
            let is_left = std::mem::take(&mut left[usual]);
            match *order {
                Order::Run { tokens, .. } if is_left => {
                    let most = if tokens == 0 { u32::MAX } else { tokens };
                    turns.push(Turn { slot: ready[usual], most, usual, due: false, held: false });
                }
                Order::Hold(_) if is_left => fates[usual] = Fate::Held,
                Order::Hold(_) => turns.iter_mut().filter(|turn| turn.usual == usual).for_each(|turn| turn.held = true),
                Order::Run { .. } => {}
            }
        }
        let others = (0..ready.len()).filter(|usual| left[*usual]);
        turns.extend(others.map(|usual| Turn { slot: ready[usual], most: u32::MAX, usual, due: false, held: false }));
        turns.sort_by_key(|turn| sequence(turn.slot).is_some_and(Sequence::in_prompt));
        turns
    }

    /// Counts in how many micro-batches in a row each sequence has been passed over: held back, or overtaken by one of its group
    /// while it did not get all that it could.
    fn note_passed(&mut self, ready: &[Slot], fates: &[Fate]) {
        let mut overtakes = [false, false];
        for (&slot, fate) in ready.iter().zip(fates).rev() {
            let Some(sequence) = &mut self.slots[slot as usize] else { continue };
            let overtakes = &mut overtakes[usize::from(sequence.in_prompt())];
            match fate {
                Fate::Full => sequence.passed = 0,
                Fate::Held => sequence.passed = sequence.passed.saturating_add(1),
                Fate::Part | Fate::Left if *overtakes => sequence.passed = sequence.passed.saturating_add(1),
                Fate::Part | Fate::Left => {}
            }
            *overtakes |= matches!(fate, Fate::Part | Fate::Full);
        }
    }

    /// Cuts a sequence's next slice of at most `budget` tokens.
    fn cut(&mut self, slot: Slot, budget: u32, slices: &mut Vec<SeqSlice>) -> Part {
        #[expect(clippy::expect_used, reason = "the caller has just looked at it")]
        let sequence = self.slots[slot as usize].as_mut().expect("a slot that is ready holds a sequence");
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
        if !decodes {
            self.prefill.remove(&sequence.order);
        }
        slices.push(sequence.slice(tokens, logits));
        Part { slot, tokens, logits, decodes }
    }
}

fn decodes(step: &Step) -> usize {
    step.parts.iter().filter(|part| part.decodes).count()
}
