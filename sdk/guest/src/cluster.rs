//! The policy's copy of the host's tables.
//!
//! Made from the snapshot that `init` brings and kept current by [`crate::driver`]; policies only read it. Being a copy,
//! it can be wrong only for as long as an event is on its way, and the host checks every answer against its own tables.

use crate::event::Event;

/// Microseconds on the host's monotonic clock.
pub type Micros = u64;

/// One chain: a path of stages that together hold the whole model. Valid within one [`Cluster::epoch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u32);

/// What is known of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    id: ChainId,
    capacity: u32,
    busy: u32,
    free_tokens: u32,
    open: bool,
    service: Micros,
    /// One more than the largest reservation that fits, 0 when none does. Kept by [`Self::update_room`], so that a scan
    /// over hundreds of chains compares one number for each.
    room: u64,
}

impl Chain {
    /// An open, idle chain for `capacity` jobs and `free_tokens` KV tokens.
    #[must_use]
    pub fn new(id: ChainId, capacity: u32, free_tokens: u32) -> Self {
        let mut chain = Self { id, capacity, busy: 0, free_tokens, open: true, service: 0, room: 0 };
        chain.update_room();
        chain
    }

    /// The same chain with `busy` running jobs, open or not, and its smoothed service time.
    #[must_use]
    pub fn with_state(self, busy: u32, open: bool, service: Micros) -> Self {
        let mut chain = Self { busy, open, service, ..self };
        chain.update_room();
        chain
    }

    /// Which chain.
    #[must_use]
    pub fn id(&self) -> ChainId {
        self.id
    }

    /// Jobs that may run at once.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Jobs that run now.
    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// KV tokens that can still be reserved.
    #[must_use]
    pub fn free_tokens(&self) -> u32 {
        self.free_tokens
    }

    /// False while the chain drains: it takes no new job.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Smoothed time of a whole job on this chain; 0 until one has finished.
    #[must_use]
    pub fn service(&self) -> Micros {
        self.service
    }

    /// Whether a job that reserves `reserve` KV tokens could start here now: the chain is open, has a free place and
    /// enough free tokens. The host refuses a dispatch to a chain for which this is false.
    #[must_use]
    pub fn fits(&self, reserve: u32) -> bool {
        u64::from(reserve) < self.room
    }

    fn update_room(&mut self) {
        let takes_jobs = self.open && self.busy < self.capacity;
        self.room = if takes_jobs { u64::from(self.free_tokens) + 1 } else { 0 };
    }
}

/// All chains and the length of the central queue, at one point in the host's stream of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    epoch: u64,
    seq: u64,
    chains: Vec<Chain>,
    queued: u32,
}

impl Cluster {
    /// A cluster of `chains`, which ascend by id, with `queued` requests in the central queue.
    #[must_use]
    pub fn new(epoch: u64, seq: u64, chains: Vec<Chain>, queued: u32) -> Self {
        Self { epoch, seq, chains, queued }
    }

    /// The topology epoch: chain ids mean something within one epoch only. A new epoch brings a new `init`.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the last event that is folded in.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// All chains, ascending by id.
    #[must_use]
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The chain with this id, if there is one in this epoch.
    #[must_use]
    pub fn chain(&self, id: ChainId) -> Option<&Chain> {
        self.position(id).map(|at| &self.chains[at])
    }

    /// Of the chains that can take a job of `reserve` KV tokens now, the one with the smallest `key`; of equals, the one
    /// with the lowest id. One pass; `key` is computed once a chain.
    #[must_use]
    pub fn best_fit<K: PartialOrd>(&self, reserve: u32, key: impl Fn(&Chain) -> K) -> Option<&Chain> {
        let first = self.chains.iter().position(|chain| chain.fits(reserve))?;
        let mut best = &self.chains[first];
        let mut lowest = key(best);
        let mut consider = |chain| {
            let key = key(chain);
            // The key first: on most chains that comparison alone settles it.
            if key < lowest && chain.fits(reserve) {
                (best, lowest) = (chain, key);
            }
        };
        // In groups, so that the compiler unrolls: a guest pays for every turn of a loop.
        let (groups, rest) = self.chains[first + 1..].as_chunks::<8>();
        groups.iter().flatten().chain(rest).for_each(&mut consider);
        Some(best)
    }

    /// Requests in the central queue.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Folds one event in. False when it is about a chain that this view does not have.
    pub(crate) fn fold(&mut self, event: Event) -> bool {
        let id = match event {
            Event::Queued(requests) => {
                self.queued = requests;
                return true;
            }
            Event::Busy(id, _) | Event::FreeTokens(id, _) | Event::Service(id, _) | Event::Open(id, _) => id,
        };
        let Some(at) = self.position(id) else { return false };
        let chain = &mut self.chains[at];
        match event {
            Event::Busy(_, jobs) => chain.busy = jobs,
            Event::FreeTokens(_, tokens) => chain.free_tokens = tokens,
            Event::Service(_, time) => chain.service = time,
            Event::Open(_, open) => chain.open = open,
            Event::Queued(_) => {}
        }
        chain.update_room();
        true
    }

    pub(crate) fn set_seq(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// The index of the chain with this id in [`Self::chains`]. Ids are dense as a rule, so the id is the index; a gap costs a
    /// binary search.
    #[must_use]
    pub fn position(&self, id: ChainId) -> Option<usize> {
        let guess = id.0 as usize;
        if self.chains.get(guess).is_some_and(|chain| chain.id == id) {
            return Some(guess);
        }
        self.chains.binary_search_by_key(&id, |chain| chain.id).ok()
    }
}
