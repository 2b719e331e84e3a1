//! One policy and its view, driven in the words of the contract.
//!
//! The component's exports (`guest.rs`, on WebAssembly only) and the native test harness ([`crate::testing`]) both call
//! this, so that a policy sees the same in either. After `new` nothing here allocates.

use crate::cluster::Cluster;
use crate::event::Event;
use crate::policy::{InitError, RoutePolicy, Saved};
use crate::route::{Pull, Request, Waiting};

/// The answer of [`Driver::pull`] that means "none".
pub const NONE: u32 = u32::MAX;

/// Room for the largest window that the host shows.
const WINDOW: usize = 64;

/// A policy, the cluster as it knows it, and a buffer that `pull` reuses.
#[derive(Debug)]
pub struct Driver<P> {
    policy: P,
    cluster: Cluster,
    window: Vec<Waiting>,
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
        Ok(Self { policy, cluster, window: Vec::with_capacity(WINDOW) })
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
