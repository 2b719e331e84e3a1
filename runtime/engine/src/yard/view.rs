//! What the policy has been told, and the telling of what has changed since.
//!
//! Changes are not logged one by one: before a question the chains that may have changed are compared with what was told
//! of them, and the differences are sent. So a pending list can not overflow, however long nobody is asked.

use crate::decision::Fault;
use crate::port::RoutePolicy;
use crate::snapshot::{ChainView, RouteEvent, Snapshot};
use crate::yard::chains::Chains;

/// The policy's view, as far as the host told it.
pub(crate) struct View {
    /// Number of the last event.
    seq: u64,
    chains: Vec<ChainView>,
    queued: u32,
    events: Vec<RouteEvent>,
}

impl View {
    pub fn new(chains: &Chains) -> Self {
        Self { seq: 0, chains: chains.views().collect(), queued: 0, events: Vec::new() }
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Brings the policy's view up to date and returns the number of the last event in it.
    ///
    /// # Errors
    /// The policy's fault in `init` or `apply`. It is then the policy's to ask for a snapshot before the next question.
    pub fn sync(&mut self, chains: &mut Chains, queued: u32, policy: &mut dyn RoutePolicy) -> Result<u64, Fault> {
        self.collect(chains, queued);
        self.seq += self.events.len() as u64;
        if policy.wants_snapshot() {
            policy.init(&Snapshot { epoch: 0, seq: self.seq, chains: self.chains.clone(), queued })?;
        } else if !self.events.is_empty() {
            policy.apply(self.seq, &self.events)?;
        }
        Ok(self.seq)
    }

    /// Fills `events` with the differences between the tables and what was told, and counts them as told.
    fn collect(&mut self, chains: &mut Chains, queued: u32) {
        self.events.clear();
        while let Some(chain) = chains.next_untold() {
            let (id, new) = (chain.id, chain.view());
            let old = std::mem::replace(&mut self.chains[id.0 as usize], new);
            let differences = [
                (old.busy != new.busy).then_some(RouteEvent::Busy(id, new.busy)),
                (old.free_tokens != new.free_tokens).then_some(RouteEvent::FreeTokens(id, new.free_tokens)),
                (old.service != new.service).then_some(RouteEvent::Service(id, new.service)),
                (old.open != new.open).then_some(RouteEvent::Open(id, new.open)),
            ];
            self.events.extend(differences.into_iter().flatten());
        }
        if self.queued != queued {
            self.queued = queued;
            self.events.push(RouteEvent::Queued(queued));
        }
    }
}
