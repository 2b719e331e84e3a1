//! All that the engine asks of the world: policies to consult, and stages to run what it plans.
//!
//! Implemented by `pointsman-policy` (Wasm), by [`crate::builtin`] (native) and by fakes in tests. Calls are synchronous,
//! made with no lock held, and carry time and randomness as arguments.

use std::sync::Arc;

use crate::decision::{Fault, RouteDecision};
use crate::ids::{BlockId, ChainId, Micros, RequestId, TokenId};
use crate::snapshot::{RouteEvent, Snapshot};
use crate::window::{WindowPolicy, pair};

/// The question of `route.pick`: where does this request go?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which request; for the host's books, a policy is not told.
    pub id: RequestId,
    /// Sequence number of this decision's view: all events up to it have been applied. Two decisions between which
    /// nothing changed have the same.
    pub seq: u64,
    /// Now.
    pub now: Micros,
    /// Fresh random bits, derived from the run's seed and the number of this decision; replays exactly.
    pub rnd: u64,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// Tokens that will be reserved: prompt + maximum new tokens.
    pub reserve: u32,
    /// Time by which an answer is wanted, 0 for none.
    pub deadline: Micros,
    /// Hash of the session, 0 for none.
    pub session: u64,
    /// Bit set for sampled requests and the like; 0 for now.
    pub hints: u32,
}

/// The question of `route.pull`: a chain has room, which waiting request takes it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// As in [`Pick`].
    pub seq: u64,
    /// Now.
    pub now: Micros,
    /// As in [`Pick`].
    pub rnd: u64,
    /// The chain with room.
    pub chain: ChainId,
}

/// One waiting request in the window of [`RoutePolicy::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which request.
    pub id: RequestId,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// Tokens to reserve.
    pub reserve: u32,
    /// How long it has waited.
    pub waited: Micros,
}

impl Waiting {
    /// The four words of the contract.
    #[must_use]
    pub fn words(&self) -> [u64; 4] {
        [self.id.0, pair(self.tenant, self.class), pair(self.prompt, self.reserve), self.waited.0]
    }

    /// The inverse of [`Self::words`].
    #[must_use]
    pub fn decode([id, who, size, waited]: [u64; 4]) -> Self {
        let pair = |word: u64| ((word >> 32) as u32, word as u32);
        let ((tenant, class), (prompt, reserve)) = (pair(who), pair(size));
        Self { id: RequestId(id), tenant, class, prompt, reserve, waited: Micros(waited) }
    }
}

/// How much of a prompt a chain already holds in its KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Which chain.
    pub chain: ChainId,
    /// Tokens from the beginning of the prompt, at least 1.
    pub tokens: u32,
}

impl Overlap {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> u64 {
        pair(self.chain.0, self.tokens)
    }

    /// The inverse of [`Self::word`].
    #[must_use]
    pub fn decode(word: u64) -> Self {
        Self { chain: ChainId((word >> 32) as u32), tokens: word as u32 }
    }
}

/// The `route` slot as the engine sees it.
///
/// Before each question the engine calls `init` if [`Self::wants_snapshot`] says so, otherwise `apply` with what changed
/// since the last question (not at all if nothing did); then `pick` or `pull`. Any `Err` makes the native builtin decide the same request in the same call.
pub trait RoutePolicy {
    /// True when the policy has no view yet (fresh, swapped in, or rebuilt after a fault).
    fn wants_snapshot(&self) -> bool;
    /// Hands over the whole view.
    ///
    /// # Errors
    /// The policy's fault; it stays without a view.
    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault>;
    /// Hands over what changed; `seq` is the number of the last event in `events`.
    ///
    /// # Errors
    /// The policy's fault.
    fn apply(&mut self, seq: u64, events: &[RouteEvent]) -> Result<(), Fault>;
    /// Whether [`Self::pick`] wants to know what the chains hold of a prompt.
    fn wants_overlap(&self) -> bool {
        false
    }
    /// Where does this request go? `overlap` names the chains that hold the beginning of its prompt, ascending by id; empty
    /// unless [`Self::wants_overlap`].
    ///
    /// # Errors
    /// The policy's fault, or an answer that does not decode.
    fn pick(&mut self, ask: &Pick, overlap: &[Overlap]) -> Result<RouteDecision, Fault>;
    /// Which of `waiting` (at most [`crate::limits::PULL_WINDOW_MAX`]) takes the room on `ask.chain`? An index, or none.
    ///
    /// # Errors
    /// The policy's fault.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault>;
    /// Tells the policy's keeper that the guard refused its last answer.
    fn refused(&mut self, why: &Fault);
    /// Tells the policy's keeper what the builtin answered in its place, as the packed word of the contract: the last
    /// question is settled by it.
    fn replaced(&mut self, answer: u64) {
        let _ = answer;
    }
    /// Tells the policy's keeper that a request which fitted was left waiting for too long, and was dispatched by the builtin.
    fn stalled(&mut self, request: RequestId) {
        let _ = request;
    }
}

/// All slots, as the engine sees them. A [`RoutePolicy`] alone will do: the builtin then decides what the other slots would.
pub trait Policies {
    /// Where requests go.
    fn route(&mut self) -> &mut dyn RoutePolicy;
    /// What runs in the next micro-batch.
    fn batch(&mut self) -> Option<&mut dyn WindowPolicy> {
        None
    }
    /// What leaves the prefix cache.
    fn cache(&mut self) -> Option<&mut dyn WindowPolicy> {
        None
    }
}

impl<R: RoutePolicy> Policies for R {
    fn route(&mut self) -> &mut dyn RoutePolicy {
        self
    }
}

/// Which logits rows a slice of a step must return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: a prompt chunk that is not the last.
    None,
    /// The row of the last token only.
    Last,
    /// One row for each token (prompt log-probs).
    All,
}

/// One sequence's part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqSlice {
    /// Whose tokens.
    pub request: RequestId,
    /// Position of the first token in the sequence.
    pub start: u32,
    /// The tokens to run, at least one.
    pub tokens: Vec<TokenId>,
    /// The sequence's whole block table; covers `start + tokens.len()` positions and never changes while it runs.
    pub blocks: Arc<[BlockId]>,
    /// Which logits come back.
    pub logits: Logits,
}

/// One micro-batch for one chain. The stages run it in order; there is at most one slice a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// On which chain.
    pub chain: ChainId,
    /// Number of this micro-batch on its chain, growing by one.
    pub batch: u64,
    /// The work, at least one slice.
    pub slices: Vec<SeqSlice>,
}

/// What came back from the last stage of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// On which chain.
    pub chain: ChainId,
    /// Which micro-batch.
    pub batch: u64,
    /// Logits in the order of the slices, row after row of `vocab` values; or what went wrong on the device.
    pub logits: Result<Vec<f32>, String>,
}
