//! Puts the questions of the `batch` and `cache` slots: brings the policy up to date, asks it, checks its answer, and lets the
//! builtin answer in its place after any fault.
//!
//! One desk a slot, owned by [`crate::Engine`]. Called from where the answer is needed: before a micro-batch is planned, and when
//! blocks run short.

use crate::decision::Fault;
use crate::ids::{ChainId, Micros};
use crate::random;
use crate::snapshot::Snapshot;
use crate::stats::SlotStats;
use crate::window::{Ask, Kind, WindowPolicy};

/// See the module's notes.
pub(crate) struct Desk {
    kind: Kind,
    /// Key of the random bits.
    seed: u64,
    /// Number of the last event.
    seq: u64,
    /// Why the policy could not be started; the next question's fault.
    unready: Option<Fault>,
    /// Two words for each event that has not been told.
    pub events: Vec<u64>,
    /// The window of the next question.
    pub window: Vec<u64>,
    answer: Vec<u64>,
    pub stats: SlotStats,
}

impl Desk {
    pub fn new(kind: Kind, seed: u64) -> Self {
        // Each slot has bits of its own: keys that no decision of routing is drawn under.
        let seed = random::bits(!seed, kind as u64);
        let (events, window, answer) = (Vec::new(), Vec::new(), Vec::new());
        Self { kind, seed, seq: 0, unready: None, events, window, answer, stats: SlotStats::default() }
    }

    /// Starts a policy that has not been started.
    pub fn ready(&mut self, policy: Option<&mut dyn WindowPolicy>, snapshot: Snapshot) {
        self.unready = policy.and_then(|policy| policy.init(&Snapshot { seq: self.seq, ..snapshot }).err());
    }

    /// Asks about what is in `window`, at least one entry.
    pub fn ask(
        &mut self,
        policy: Option<&mut dyn WindowPolicy>,
        now: Micros,
        chain: ChainId,
        want: u32,
        have: u32,
    ) -> &[u64] {
        let entries = self.window.len() / self.kind.words();
        let (events, answer) = (std::mem::take(&mut self.events), &mut self.answer);
        self.seq += events.len() as u64 / 2;
        let rnd = random::bits(self.seed, self.stats.decisions_total);
        let ask = Ask { seq: self.seq, now, rnd, chain, want, have };
        self.stats.decisions_total += 1;
        answer.clear();
        // One that has just faulted is started again before the next micro-batch or request; what is left of this one is the
        // builtin's.
        let policy = policy.filter(|policy| self.unready.is_some() || policy.can_answer());
        if let Some(policy) = policy {
            let told = self.unready.take().map_or(Ok(()), Err);
            let told = told.and_then(|()| if events.is_empty() { Ok(()) } else { policy.apply(ask.seq, &events) });
            let fault = match told.and_then(|()| policy.ask(&ask, &self.window, answer)) {
                Ok(()) => match self.kind.check(&ask, entries, answer) {
                    Ok(()) => None,
                    Err(fault) => {
                        policy.refused(&fault);
                        Some(fault)
                    }
                },
                Err(fault) => Some(fault),
            };
            if let Some(fault) = fault {
                self.stats.fallbacks_total[fault.class.index()] += 1;
                answer.clear();
                self.kind.builtin(&ask, entries, answer);
                policy.replaced(answer);
            }
        } else {
            self.kind.builtin(&ask, entries, answer);
        }
        self.events = events;
        self.events.clear();
        answer
    }
}
