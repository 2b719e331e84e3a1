//! When requests are due, also those in the queue.
//!
//! The host tells a request's deadline when it arrives, but not in the window of `pull`; it tells its number in the
//! window, but not when it arrives. What both have is when it arrived (in the window: now less the time waited), who
//! sent it and its sizes, so the deadline is remembered under these. Requests that are alike in all of them and arrive
//! in the same microsecond are taken to share the earliest of their deadlines.
//!
//! Only deadlines that a request brings are remembered; a default is counted from the arrival. Nobody tells the policy
//! when a request leaves the queue, so records are dropped when the queue turns out to be empty, or its head younger.

use std::collections::VecDeque;

use pointsman_sdk::{Micros, Request, Waiting};

/// The deadline of a request that has none.
pub const NEVER: Micros = Micros::MAX;

/// Most deadlines that are remembered; the host's queue holds no more. The oldest give way.
const REMEMBERED_MAX: usize = 256;

/// Bytes of a record in the saved state.
const RECORD_BYTES: usize = 32;

/// A queued request and its deadline. Ordered so that of those that are alike the earliest deadline comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    arrived: Micros,
    /// Tenant, class, prompt and reserve.
    like: [u32; 4],
    due: Micros,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let [tenant, class, prompt, reserve] = self.like.map(u64::from);
        let words = [self.arrived, self.due, tenant | class << 32, prompt | reserve << 32];
        let mut bytes = [0; RECORD_BYTES];
        for (at, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *at = word.to_le_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| bytes.as_chunks().0.get(at).map_or(0, |&word| u64::from_le_bytes(word));
        let (who, size) = (word(2), word(3));
        Self {
            arrived: word(0),
            due: word(1),
            like: [who, who >> 32, size, size >> 32].map(|part| (part & 0xffff_ffff) as u32),
        }
    }
}

/// Deadlines, and what is remembered of those of queued requests.
pub struct Due {
    /// For requests that bring none, counted from their arrival; 0 for none.
    default: Micros,
    /// In their order, so that 64 look-ups a call stay cheap even when all came at once.
    queued: VecDeque<Record>,
}

impl Due {
    /// Remembers nothing yet.
    pub fn new(default: Micros) -> Self {
        Self { default, queued: VecDeque::with_capacity(REMEMBERED_MAX) }
    }

    /// When a new request is due.
    pub fn of_request(&self, ask: &Request) -> Micros {
        if ask.deadline > 0 { ask.deadline } else { self.by_default(ask.now) }
    }

    /// When a waiting request is due, as far as is known.
    pub fn of_waiting(&self, now: Micros, request: &Waiting) -> Micros {
        let arrived = now.saturating_sub(request.waited);
        let like = [request.tenant, request.class, request.prompt, request.reserve];
        let key = (arrived, like);
        let first = self.queued.partition_point(|record| (record.arrived, record.like) < key);
        let found = self.queued.get(first).filter(|record| (record.arrived, record.like) == key);
        found.map_or_else(|| self.by_default(arrived), |record| record.due)
    }

    /// Notes the deadline of a request that goes to the queue, which holds `queued` others.
    pub fn remember(&mut self, ask: &Request, queued: u32) {
        if queued == 0 {
            self.queued.clear();
        }
        if ask.deadline > 0 {
            if self.queued.len() >= REMEMBERED_MAX {
                self.queued.pop_front();
            }
            let like = [ask.tenant, ask.class, ask.prompt, ask.reserve];
            let record = Record { arrived: ask.now, like, due: ask.deadline };
            self.queued.insert(self.queued.partition_point(|other| *other < record), record);
        }
    }

    /// Drops what is older than the head of the queue.
    pub fn forget_before(&mut self, now: Micros, head: &Waiting) {
        let arrived = now.saturating_sub(head.waited);
        while self.queued.front().is_some_and(|record| record.arrived < arrived) {
            self.queued.pop_front();
        }
    }

    /// The records in order, 32 bytes each: arrival and deadline as 64 bits, tenant, class, prompt and reserve as 32
    /// bits, all little-endian.
    pub fn save(&self) -> Vec<u8> {
        self.queued.iter().flat_map(|record| record.to_bytes()).collect()
    }

    /// Takes over what [`Self::save`] gave; leaves all as it is when the bytes can not be that.
    pub fn restore(&mut self, bytes: &[u8]) {
        let (records, rest) = bytes.as_chunks();
        let records = || records.iter().map(Record::from_bytes);
        if rest.is_empty() && records().len() <= REMEMBERED_MAX && records().is_sorted() {
            self.queued.clear();
            self.queued.extend(records().filter(|record| record.due > 0));
        }
    }

    fn by_default(&self, arrived: Micros) -> Micros {
        if self.default > 0 { arrived.saturating_add(self.default) } else { NEVER }
    }
}
