//! The `batch` slot: the trait, its question and its answer, with the packed forms of the contract.

use crate::cluster::{ChainId, Micros};
use crate::event::{high_half, low_half, pair};
use crate::policy::Policy;

/// A policy for the `batch` slot: what runs in the next micro-batch of a chain. Only `step` must be written.
///
/// Whatever it answers changes when a sequence's tokens come, never which. A sequence that has been passed over for too long is
/// run by the host.
pub trait BatchPolicy: Policy {
    /// Is told what a tenant was served since the last time, on all chains together.
    fn on_served(&mut self, served: Served) {
        let _ = served;
    }

    /// Says in `plan` what the next micro-batch of `ask.chain` does otherwise than without a policy; see [`Plan`]. `ready` holds
    /// those that decode first, each group with those that are next in turn in front.
    fn step(&mut self, ask: &Step, ready: &[Ready], plan: &mut Plan);
}

/// The question of [`BatchPolicy::step`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Now.
    pub now: Micros,
    /// Fresh random bits, the same again in a replay.
    pub rnd: u64,
    /// Which chain.
    pub chain: ChainId,
    /// Tokens of prompts that this micro-batch may hold, all sequences together.
    pub token_budget: u32,
    /// Micro-batches that are at work on the chain.
    pub in_flight: u32,
}

/// A sequence that is ready to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The host's number of the request.
    pub id: u64,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// Tokens that it has at the end at most: prompt and new ones.
    pub reserve: u32,
    /// Tokens whose keys and values are there, cached ones included.
    pub computed: u32,
    /// Tokens that it can run now: 1 when it decodes, else the rest of its prompt.
    pub pending: u32,
    /// Time since the request arrived.
    pub waited: Micros,
    /// Time by which an answer is wanted, 0 for none.
    pub deadline: Micros,
    /// New tokens so far.
    pub generated: u32,
    /// Micro-batches in a row in which it was passed over in favour of others.
    pub passed: u32,
}

impl Ready {
    /// Words of one sequence.
    pub(crate) const WORDS: usize = 8;

    /// Whether its prompt has been computed.
    #[must_use]
    pub fn decodes(&self) -> bool {
        self.computed >= self.prompt
    }

    pub(crate) fn decode([id, who, size, run, waited, deadline, so_far, _]: [u64; Self::WORDS]) -> Self {
        Self {
            id,
            tenant: high_half(who),
            class: low_half(who),
            prompt: high_half(size),
            reserve: low_half(size),
            computed: high_half(run),
            pending: low_half(run),
            waited,
            deadline,
            generated: high_half(so_far),
            passed: low_half(so_far),
        }
    }

    /// The words of the contract. What the host does; used by tests.
    pub(crate) fn words(self) -> [u64; Self::WORDS] {
        [
            self.id,
            pair(self.tenant, self.class),
            pair(self.prompt, self.reserve),
            pair(self.computed, self.pending),
            self.waited,
            self.deadline,
            pair(self.generated, self.passed),
            0,
        ]
    }
}

/// What a tenant was served since the last time it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Opaque tenant number.
    pub tenant: u32,
    /// Tokens of prompts that were computed for it; cached ones cost nothing and do not count.
    pub prompt_tokens: u32,
    /// Tokens that were decoded for it.
    pub new_tokens: u32,
}

impl Served {
    const KIND: u64 = 1;

    /// Reads an event from its two words; `None` for a kind that this SDK does not know.
    pub(crate) fn decode(head: u64, value: u64) -> Option<Self> {
        let served = Self { tenant: low_half(head), prompt_tokens: high_half(value), new_tokens: low_half(value) };
        (head >> 56 == Self::KIND).then_some(served)
    }

    /// The two words of the contract. What the host does; used by tests.
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        [Self::KIND << 56 | u64::from(self.tenant), pair(self.prompt_tokens, self.new_tokens)]
    }
}

/// What a micro-batch does otherwise than without a policy. Those that [`Self::run`] names come first, in that order, as far as
/// the budget goes; whoever is not named follows as usual; whoever is on [`Self::hold`] is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    words: Vec<u64>,
}

impl Plan {
    const RUN: u64 = 1;
    const HOLD: u64 = 2;
    const TOKENS_MAX: u32 = (1 << 24) - 1;

    /// Runs as much of the sequence at `index` as the budget allows. Name none twice.
    pub fn run(&mut self, index: usize) {
        self.words.push(Self::RUN << 56 | index as u64);
    }

    /// Runs at most `tokens` tokens of the sequence at `index`, at least one.
    pub fn run_at_most(&mut self, index: usize, tokens: u32) {
        self.words.push(Self::RUN << 56 | u64::from(tokens.clamp(1, Self::TOKENS_MAX)) << 32 | index as u64);
    }

    /// Leaves the sequence at `index` out of this micro-batch.
    pub fn hold(&mut self, index: usize) {
        self.words.push(Self::HOLD << 56 | index as u64);
    }

    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// The words of the contract.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
