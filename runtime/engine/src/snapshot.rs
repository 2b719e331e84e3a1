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

impl Snapshot {
    /// The whole state as events, for somebody who has an older view of the same chains.
    #[must_use]
    pub fn as_events(&self) -> Vec<RouteEvent> {
        let chains = self.chains.iter().flat_map(|chain| {
            [
                RouteEvent::Busy(chain.id, chain.busy),
                RouteEvent::FreeTokens(chain.id, chain.free_tokens),
                RouteEvent::Service(chain.id, chain.service),
                RouteEvent::Open(chain.id, chain.open),
            ]
        });
        chains.chain([RouteEvent::Queued(self.queued)]).collect()
    }

    /// Folds events in; one about a chain that is not here is passed over.
    pub fn fold(&mut self, seq: u64, events: impl IntoIterator<Item = RouteEvent>) {
        self.seq = seq;
        for event in events {
            let (id, set): (_, &dyn Fn(&mut ChainView)) = match event {
                RouteEvent::Queued(requests) => {
                    self.queued = requests;
                    continue;
                }
                RouteEvent::Busy(id, jobs) => (id, &move |chain| chain.busy = jobs),
                RouteEvent::FreeTokens(id, tokens) => (id, &move |chain| chain.free_tokens = tokens),
                RouteEvent::Service(id, time) => (id, &move |chain| chain.service = time),
                RouteEvent::Open(id, open) => (id, &move |chain| chain.open = open),
            };
            if let Some(chain) = self.chains.get_mut(id.0 as usize) {
                set(chain);
            }
        }
    }
}

impl ChainView {
    /// Whether `reserve` tokens can be dispatched to it.
    #[must_use]
    pub fn takes(&self, reserve: u32) -> bool {
        self.open && self.busy < self.capacity && self.free_tokens >= reserve
    }
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
    /// Reads an event from its two words; `None` for an unknown kind.
    #[must_use]
    pub fn decode([head, value]: [u64; 2]) -> Option<Self> {
        let chain = ChainId((head & 0xffff_ffff) as u32);
        let count = u32::try_from(value).unwrap_or(u32::MAX);
        Some(match head >> 56 {
            1 => Self::Busy(chain, count),
            2 => Self::FreeTokens(chain, count),
            3 => Self::Queued(count),
            4 => Self::Service(chain, Micros(value)),
            5 => Self::Open(chain, value != 0),
            _ => return None,
        })
    }

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
