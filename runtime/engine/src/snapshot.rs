//! What a policy may see: a bounded, ordered copy of the host's tables, and the events that change it.
//!
//! A policy is given a [`Snapshot`] once and then only [`RouteEvent`]s; both carry sequence numbers, so that a swap can
//! be cut between two events. Nothing here is a handle: losing or corrupting a copy can not harm the host.

use crate::ids::{ChainId, Micros};

/// One chain, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainView {
    /// Which chain.
    pub id: ChainId,
    /// Jobs that may run at once.
    pub capacity: u32,
    /// Jobs that run now.
    pub busy: u32,
    /// KV tokens that can still be reserved; what only the prefix cache holds is counted among them.
    pub free_tokens: u32,
    /// False while draining: it takes no new job.
    pub open: bool,
    /// Smoothed time of a whole job on this chain, in microseconds; 0 until one has finished.
    pub service: Micros,
}

/// The whole view at one event sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Topology epoch: chain ids are valid within one epoch only.
    pub epoch: u64,
    /// The last event that is folded in.
    pub seq: u64,
    /// All chains, ascending by id.
    pub chains: Vec<ChainView>,
    /// Requests in the central queue.
    pub queued: u32,
}

/// One change of the view. Encoded as two words in the contract: `kind << 56 | id`, then the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEvent {
    /// Kind 1: running jobs of a chain.
    Busy(ChainId, u32),
    /// Kind 2: KV tokens of a chain that can still be reserved.
    FreeTokens(ChainId, u32),
    /// Kind 3: requests in the central queue (id 0).
    Queued(u32),
    /// Kind 4: smoothed service time of a chain.
    Service(ChainId, Micros),
    /// Kind 5: whether a chain takes new jobs.
    Open(ChainId, bool),
}

impl RouteEvent {
    /// The two words of the contract.
    #[must_use]
    pub fn words(self) -> [u64; 2] {
        let pack = |kind: u64, id: u32, value: u64| [kind << 56 | u64::from(id), value];
        match self {
            Self::Busy(chain, jobs) => pack(1, chain.0, u64::from(jobs)),
            Self::FreeTokens(chain, tokens) => pack(2, chain.0, u64::from(tokens)),
            Self::Queued(requests) => pack(3, 0, u64::from(requests)),
            Self::Service(chain, time) => pack(4, chain.0, time.0),
            Self::Open(chain, open) => pack(5, chain.0, u64::from(open)),
        }
    }
}
