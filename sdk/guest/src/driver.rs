//! One policy and its view, driven in the words of the contract.
//!
//! The component's exports (`guest`, on WebAssembly only) and the native test harnesses ([`crate::testing`]) both call
//! this, so that a policy sees the same in either. The windows of hot calls are buffers that are kept from call to call.

use crate::batch::{BatchPolicy, Plan, Ready, Served, Step};
use crate::cache::{CachePolicy, Evict, Format, Idle, NewSequence};
use crate::cluster::Cluster;
use crate::event::Event;
use crate::place::{Fleet, Model, Outcome, PlacePolicy, Workload};
use crate::policy::{InitError, Policy, Saved};
use crate::route::{Candidate, Overlap, Pull, Request, RoutePolicy, Waiting};

/// The answer of [`Driver::pull`] that means "none".
pub const NONE: u32 = u32::MAX;

/// Room for the largest windows that the host shows.
const WAITING: usize = 64;
const READY: usize = 256;
const IDLE: usize = 64;

/// A policy and the cluster as it knows it.
#[derive(Debug)]
pub struct Driver<P> {
    policy: P,
    cluster: Cluster,
    windows: Windows,
}

/// Buffers that questions reuse. Those of slots that a policy does not serve stay empty.
#[derive(Debug, Default)]
struct Windows {
    waiting: Vec<Waiting>,
    overlap: Vec<Overlap>,
    ready: Vec<Ready>,
    plan: Plan,
    idle: Vec<Idle>,
    victims: Vec<u32>,
}

/// Replaces what a buffer holds by what `words` say. Allocates the first time only.
fn fill<T, const N: usize>(window: &mut Vec<T>, room: usize, words: &[u64], decode: fn([u64; N]) -> T) {
    window.clear();
    window.reserve(room);
    window.extend(words.as_chunks().0.iter().map(|&entry| decode(entry)));
}

impl<P: Policy> Driver<P> {
    /// Starts the policy on `cluster` and hands it what its predecessor saved.
    ///
    /// # Errors
    /// The policy's own.
    pub fn new(config: &str, cluster: Cluster, previous: Option<&Saved>) -> Result<Self, InitError> {
        let mut policy = P::init(config, &cluster)?;
        if let Some(saved) = previous {
            policy.restore(&saved.schema, &saved.bytes);
        }
        Ok(Self { policy, cluster, windows: Windows::default() })
    }

    /// The policy's state, for people.
    pub fn dump(&self) -> String {
        self.policy.dump()
    }

    /// What the policy hands to its successor.
    pub fn save(&self) -> Option<Saved> {
        let bytes = self.policy.save()?;
        Some(Saved { schema: P::STATE_SCHEMA.to_owned(), seq: self.cluster.seq(), bytes })
    }

    /// The view, as of the last event.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl<P: RoutePolicy> Driver<P> {
    /// Folds events in, two words each, and tells the policy of each. Events of unknown kinds, and of chains that the
    /// view does not have, are passed over.
    pub fn apply(&mut self, seq: u64, words: &[u64]) {
        for &[head, value] in words.as_chunks().0 {
            if let Some(event) = Event::decode(head, value)
                && self.cluster.fold(event)
            {
                self.policy.on_event(event, &self.cluster);
            }
        }
        self.cluster.set_seq(seq);
    }

    /// The packed decision for one request.
    pub fn pick(&mut self, ask: &Request) -> u64 {
        self.policy.pick(ask, &self.cluster).encode()
    }

    /// The packed decision for one request, with the chains that hold the beginning of its prompt, a word each.
    pub fn pick_affine(&mut self, ask: &Request, words: &[u64]) -> u64 {
        let overlap = &mut self.windows.overlap;
        fill(overlap, WAITING, words, |[word]| Overlap::decode(word));
        self.policy.pick_affine(ask, overlap, &self.cluster).encode()
    }

    /// The scores behind the decision for one request.
    pub fn trace(&self, ask: &Request, words: &[u64]) -> Vec<Candidate> {
        let overlap: Vec<Overlap> = words.iter().map(|&word| Overlap::decode(word)).collect();
        self.policy.trace(ask, &overlap, &self.cluster)
    }

    /// The index of the waiting request that takes the room, four words each, or [`NONE`].
    pub fn pull(&mut self, ask: &Pull, words: &[u64]) -> u32 {
        let waiting = &mut self.windows.waiting;
        fill(waiting, WAITING, words, Waiting::decode);
        let choice = self.policy.pull(ask, waiting, &self.cluster);
        choice.and_then(|index| u32::try_from(index).ok()).unwrap_or(NONE)
    }
}

impl<P: BatchPolicy> Driver<P> {
    /// Tells the policy what was served, two words for each event. Unknown kinds are passed over.
    pub fn apply_served(&mut self, seq: u64, words: &[u64]) {
        for &[head, value] in words.as_chunks().0 {
            if let Some(served) = Served::decode(head, value) {
                self.policy.on_served(served);
            }
        }
        self.cluster.set_seq(seq);
    }

    /// What the next micro-batch does, a word for each sequence that is named; eight words for each that is ready.
    pub fn step(&mut self, ask: &Step, words: &[u64]) -> &[u64] {
        let Windows { ready, plan, .. } = &mut self.windows;
        fill(ready, READY, words, Ready::decode);
        plan.clear();
        self.policy.step(ask, ready, plan);
        plan.words()
    }
}

impl<P: CachePolicy> Driver<P> {
    /// The indices of those that go, four words for each end of an idle prefix.
    pub fn victims(&mut self, ask: &Evict, words: &[u64]) -> &[u32] {
        let Windows { idle, victims, .. } = &mut self.windows;
        fill(idle, IDLE, words, Idle::decode);
        victims.clear();
        self.policy.victims(ask, idle, victims);
        victims
    }

    /// The index of the chosen format, a word for each that is offered.
    pub fn format(&mut self, ask: &NewSequence, words: &[u64]) -> u32 {
        let offered: Vec<Format> = words.iter().map(|&word| Format::decode(word)).collect();
        u32::try_from(self.policy.format(ask, &offered)).unwrap_or(NONE)
    }
}

impl<P: PlacePolicy> Driver<P> {
    /// The policy's plan.
    ///
    /// # Errors
    /// The policy's own.
    pub fn propose(&mut self, model: &Model, workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        self.policy.propose(model, workload, fleet)
    }
}
