//! One policy and its view, driven in the words of the contract.
//!
//! The component's exports (`guest.rs`, on WebAssembly only) and the native test harness ([`crate::testing`]) both call
//! this, so that a policy sees the same in either. After `new` nothing here allocates.

use crate::cluster::Cluster;
use crate::event::Event;
use crate::policy::{InitError, RoutePolicy, Saved};
use crate::route::{Candidate, Overlap, Pull, Request, Waiting};

/// The answer of [`Driver::pull`] that means "none".
pub const NONE: u32 = u32::MAX;

/// Room for the largest window that the host shows.
const WINDOW: usize = 64;

/// A policy, the cluster as it knows it, and buffers that questions reuse.
#[derive(Debug)]
pub struct Driver<P> {
    policy: P,
    cluster: Cluster,
    window: Vec<Waiting>,
    overlap: Vec<Overlap>,
}

impl<P: RoutePolicy> Driver<P> {
    /// Starts the policy on `cluster` and hands it what its predecessor saved.
    ///
    /// # Errors
    /// The policy's own.
    pub fn new(config: &str, cluster: Cluster, previous: Option<&Saved>) -> Result<Self, InitError> {
        let mut policy = P::init(config, &cluster)?;
        if let Some(saved) = previous {
            policy.restore(&saved.schema, &saved.bytes);
        }
        let (window, overlap) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
        Ok(Self { policy, cluster, window, overlap })
    }

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
        self.overlap.clear();
        self.overlap.extend(words.iter().map(|&word| Overlap::decode(word)));
        self.policy.pick_affine(ask, &self.overlap, &self.cluster).encode()
    }

    /// The scores behind the decision for one request.
    pub fn trace(&self, ask: &Request, words: &[u64]) -> Vec<Candidate> {
        let overlap: Vec<Overlap> = words.iter().map(|&word| Overlap::decode(word)).collect();
        self.policy.trace(ask, &overlap, &self.cluster)
    }

    /// The policy's state, for people.
    pub fn dump(&self) -> String {
        self.policy.dump()
    }

    /// The index of the waiting request that takes the room, four words each, or [`NONE`].
    pub fn pull(&mut self, ask: &Pull, words: &[u64]) -> u32 {
        self.window.clear();
        self.window.extend(words.as_chunks().0.iter().map(|&request| Waiting::decode(request)));
        let choice = self.policy.pull(ask, &self.window, &self.cluster);
        choice.and_then(|index| u32::try_from(index).ok()).unwrap_or(NONE)
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
