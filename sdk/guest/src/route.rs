//! The `route` slot: the trait, its questions and its answers, with the packed forms of the contract.

use crate::cluster::{ChainId, Cluster, Micros};
use crate::event::{Event, high_half, low_half, pair};
use crate::policy::Policy;

/// A policy for the `route` slot: where a request goes. Only `pick` must be written.
///
/// Every call has a budget of fuel (about 10 µs of work); one that overruns it is ended, and the host decides instead.
/// `cluster` always has all events folded in. Keep `pick` and `pull` free of allocations.
pub trait RoutePolicy: Policy {
    /// Is told of one change; `cluster` has it already. For policies that keep indexes of their own.
    fn on_event(&mut self, event: Event, cluster: &Cluster) {
        let _ = (event, cluster);
    }

    /// Decides where a new request goes.
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision;

    /// As [`Self::pick`], asked instead of it when [`Policy::NEEDS`] has `prefix_overlap`. `overlap` names the chains that hold
    /// the beginning of the prompt, ascending by id.
    fn pick_affine(&mut self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Decision {
        let _ = overlap;
        self.pick(ask, cluster)
    }

    /// The scores behind the decision that [`Self::pick`] (or [`Self::pick_affine`]) would take now; the lowest is the best.
    /// For people, never on the live path. Chains that are not named were not considered.
    fn trace(&self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let _ = (ask, overlap, cluster);
        Vec::new()
    }

    /// Chooses one of `waiting`, by index, for the room on `ask.chain`; `None` leaves the room empty for now. The default
    /// takes the first, in order of arrival, that fits.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        let chain = cluster.chain(ask.chain)?;
        waiting.iter().position(|request| chain.fits(request.reserve))
    }
}

/// The question of [`crate::RoutePolicy::pick`]: where does this request go?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Now.
    pub now: Micros,
    /// Fresh random bits, the same again in a replay.
    pub rnd: u64,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// KV tokens that will be reserved: prompt + maximum new tokens.
    pub reserve: u32,
    /// Time by which an answer is wanted, 0 for none.
    pub deadline: Micros,
    /// Hash of the session, 0 for none.
    pub session: u64,
    /// Bit set, 0 for now; ignore bits that you do not know.
    pub hints: u32,
}

/// How much of the prompt in question a chain already holds in its KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Which chain.
    pub chain: ChainId,
    /// Tokens from the beginning of the prompt, at least 1, that need not be computed again there.
    pub tokens: u32,
}

impl Overlap {
    /// Reads the word of the contract: `chain << 32 | tokens`.
    pub(crate) fn decode(word: u64) -> Self {
        Self { chain: ChainId(high_half(word)), tokens: low_half(word) }
    }

    /// The word of the contract. What the host does; used by tests.
    #[must_use]
    pub fn word(self) -> u64 {
        pair(self.chain.0, self.tokens)
    }
}

/// What a chain was worth in a decision, for people; see [`crate::RoutePolicy::trace`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which chain.
    pub chain: ChainId,
    /// The lowest is the best.
    pub score: f64,
}

/// The question of [`crate::RoutePolicy::pull`]: this chain has room, which waiting request takes it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Now.
    pub now: Micros,
    /// Fresh random bits, the same again in a replay.
    pub rnd: u64,
    /// The chain with room.
    pub chain: ChainId,
}

/// One waiting request, as `pull` sees it. The window is in order of arrival and holds at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The host's number of the request.
    pub id: u64,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// KV tokens that will be reserved.
    pub reserve: u32,
    /// How long it has waited.
    pub waited: Micros,
}

impl Waiting {
    /// Words of one waiting request in the window.
    pub(crate) const WORDS: usize = 4;

    pub(crate) fn decode([id, who, size, waited]: [u64; Self::WORDS]) -> Self {
        Self {
            id,
            tenant: high_half(who),
            class: low_half(who),
            prompt: high_half(size),
            reserve: low_half(size),
            waited,
        }
    }

    /// The four words of the contract. What the host does; used by tests.
    pub(crate) fn words(self) -> [u64; Self::WORDS] {
        [self.id, pair(self.tenant, self.class), pair(self.prompt, self.reserve), self.waited]
    }
}

/// The answer to a [`Request`]. Advice: the host checks it, and decides itself when it can not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Reserve KV on this chain and run there.
    Dispatch(ChainId),
    /// Wait in the central queue until a chain has room and `pull` chooses this request.
    Queue,
    /// Refuse. The code is the policy's own and is shown to the operator.
    Reject(u32),
    /// Ask again after this many microseconds; the host waits one second at most.
    Defer(u32),
}

impl Decision {
    /// The packed word of the contract: bits 63..60 the kind, bits 31..0 the operand.
    pub(crate) fn encode(self) -> u64 {
        match self {
            Self::Dispatch(chain) => u64::from(chain.0),
            Self::Queue => 1 << 60,
            Self::Reject(code) => 2 << 60 | u64::from(code),
            Self::Defer(micros) => 3 << 60 | u64::from(micros),
        }
    }

    /// The inverse of [`Self::encode`], for tests; `None` for a word that the host would refuse.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let operand = low_half(word);
        match word >> 32 {
            0 => Some(Self::Dispatch(ChainId(operand))),
            0x1000_0000 => Some(Self::Queue),
            0x2000_0000 => Some(Self::Reject(operand)),
            0x3000_0000 => Some(Self::Defer(operand)),
            _ => None,
        }
    }
}
