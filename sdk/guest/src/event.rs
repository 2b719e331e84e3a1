//! What changed in the cluster, and its two-word form on the wire (`sdk/wit/events.md`).

use crate::cluster::{ChainId, Micros};

/// One change of the [`crate::Cluster`]. The view has it already when a policy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A chain now runs this many jobs.
    Busy(ChainId, u32),
    /// A chain now has this many KV tokens left to reserve.
    FreeTokens(ChainId, u32),
    /// The central queue now holds this many requests.
    Queued(u32),
    /// A chain's smoothed time of a whole job.
    Service(ChainId, Micros),
    /// Whether a chain takes new jobs.
    Open(ChainId, bool),
}

impl Event {
    /// Reads an event from its two words; `None` for a kind that this SDK does not know, which a policy must ignore.
    pub(crate) fn decode(head: u64, value: u64) -> Option<Self> {
        let chain = ChainId(low_half(head));
        let count = u32::try_from(value).unwrap_or(u32::MAX);
        Some(match head >> 56 {
            1 => Self::Busy(chain, count),
            2 => Self::FreeTokens(chain, count),
            3 => Self::Queued(count),
            4 => Self::Service(chain, value),
            5 => Self::Open(chain, value != 0),
            _ => return None,
        })
    }

    /// The two words of the contract: `kind << 56 | id`, then the value. What the host does; used by tests.
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        let pack = |kind: u64, id: ChainId, value: u64| [kind << 56 | u64::from(id.0), value];
        match self {
            Self::Busy(chain, jobs) => pack(1, chain, u64::from(jobs)),
            Self::FreeTokens(chain, tokens) => pack(2, chain, u64::from(tokens)),
            Self::Queued(requests) => pack(3, ChainId(0), u64::from(requests)),
            Self::Service(chain, time) => pack(4, chain, time),
            Self::Open(chain, open) => pack(5, chain, u64::from(open)),
        }
    }
}

/// Bits 31..0 of a word.
pub(crate) fn low_half(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// Bits 63..32 of a word.
pub(crate) fn high_half(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Two halves of a word.
pub(crate) fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
