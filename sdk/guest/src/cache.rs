//! The `cache` slot: the trait, its questions and its answers, with the packed forms of the contract.

use crate::cluster::{ChainId, Micros};
use crate::event::{high_half, low_half, pair};
use crate::policy::Policy;

/// A policy for the `cache` slot: which cached prefixes are given up when memory is short, and how keys and values are stored.
pub trait CachePolicy: Policy {
    /// Appends to `victims` indices into `idle`, the first to go first: at least one, none twice. More than are needed are not
    /// taken; with fewer the host asks again. `idle` has the least recently used first.
    fn victims(&mut self, ask: &Evict, idle: &[Idle], victims: &mut Vec<u32>);

    /// The index of the format in which a new request's keys and values are stored; `offered` has the most precise first, at
    /// least one. The default takes that.
    fn format(&mut self, ask: &NewSequence, offered: &[Format]) -> usize {
        let _ = (ask, offered);
        0
    }
}

/// The question of [`CachePolicy::victims`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evict {
    /// Now.
    pub now: Micros,
    /// Fresh random bits, the same again in a replay.
    pub rnd: u64,
    /// Which chain.
    pub chain: ChainId,
    /// Blocks that must become free.
    pub need_blocks: u32,
    /// Blocks that are free.
    pub free_blocks: u32,
}

/// The end of a cached prefix that nobody uses. To give it up frees its last block, and those before it that have been left at
/// the same moment and were started on as often, as far as they are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Opaque number of the tenant whose prompts it serves, and no other's.
    pub tenant: u32,
    /// Tokens from the beginning of the sequence to this end: what a hit here saves at most.
    pub depth: u32,
    /// When its last sequence left it, on a clock that counts the sequences that have left the chain.
    pub last_use: u64,
    /// Sequences that were started on it.
    pub hits: u64,
}

impl Idle {
    /// Words of one end.
    pub(crate) const WORDS: usize = 4;

    pub(crate) fn decode([who, last_use, hits, _]: [u64; Self::WORDS]) -> Self {
        Self { tenant: high_half(who), depth: low_half(who), last_use, hits }
    }

    /// The words of the contract. What the host does; used by tests.
    pub(crate) fn words(self) -> [u64; Self::WORDS] {
        [pair(self.tenant, self.depth), self.last_use, self.hits, 0]
    }
}

/// The question of [`CachePolicy::format`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewSequence {
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// KV tokens that will be reserved.
    pub reserve: u32,
    /// The part of the chain's KV memory that is reserved, in thousandths.
    pub pressure_milli: u32,
}

/// A way to store keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Which, as `events.md` of the contract lists them.
    pub code: u32,
    /// What a token takes, in bytes.
    pub token_bytes: u32,
}

impl Format {
    pub(crate) fn decode(word: u64) -> Self {
        Self { code: high_half(word), token_bytes: low_half(word) }
    }

    /// The word of the contract. What the host does; used by tests.
    #[must_use]
    pub fn word(self) -> u64 {
        pair(self.code, self.token_bytes)
    }
}
