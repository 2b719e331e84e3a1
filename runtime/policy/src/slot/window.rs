//! The slots that are asked with a window, and all slots of an engine together.

use std::sync::Arc;

use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::ids::RequestId;
use pointsman_engine::port::{Policies, RoutePolicy};
use pointsman_engine::snapshot::Snapshot;
use pointsman_engine::window::{Ask, WindowPolicy};

use super::PolicySlot;
use crate::kind::SlotKind;
use crate::quarantine::Quarantine;
use crate::record::Tap;
use crate::record::frame::fingerprint;
use crate::slo::Sample;

impl WindowPolicy for PolicySlot {
    fn wants_snapshot(&self) -> bool {
        self.incumbent.wants_snapshot()
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        self.ask(false, false, |arm, tap| arm.init(snapshot, tap))
    }

    fn apply(&mut self, seq: u64, words: &[u64]) -> Result<(), Fault> {
        self.ask(false, false, |arm, tap| arm.apply(seq, &[], words, tap))
    }

    fn ask(&mut self, ask: &Ask, window: &[u64], answer: &mut Vec<u64>) -> Result<(), Fault> {
        let Some(kind) = self.kind.window() else {
            return Err(Fault::new(FaultClass::Init, format!("the slot `{}` is not asked with a window", self.kind)));
        };
        let outcome = self.ask(false, true, |arm, tap| arm.window(kind, ask, window, answer, tap));
        self.turn_the_page();
        outcome
    }

    fn refused(&mut self, why: &Fault) {
        self.refuse(why);
    }

    fn replaced(&mut self, answer: &[u64]) {
        self.tap.write(|log| log.replaced(0, fingerprint(answer)));
    }

    /// A strike: to hold a sequence back is an answer that can be followed, but not for ever.
    fn stalled(&mut self, request: RequestId) {
        let what = format!("request {} was held back in every micro-batch until the engine ran it", request.0);
        let fault = Fault::new(FaultClass::Stall, what);
        if self.incumbent.who().is_some() {
            let after = self.incumbent.book(&fault, false);
            self.after(&fault, after);
        }
    }
}

/// The slots of one engine.
pub struct Slots {
    /// Where requests go.
    pub route: PolicySlot,
    /// What runs in the next micro-batch.
    pub batch: PolicySlot,
    /// What leaves the prefix cache.
    pub cache: PolicySlot,
}

impl Default for Slots {
    /// The builtin decides everything, and nothing is recorded.
    fn default() -> Self {
        Self::new(|_| Tap::default(), &Arc::default())
    }
}

impl Slots {
    /// Slots in which the builtin decides, each recorded through a tap of its own.
    pub fn new(mut tap: impl FnMut(SlotKind) -> Tap, quarantine: &Arc<Quarantine>) -> Self {
        let mut slot = |kind| PolicySlot::new(kind, tap(kind), Arc::clone(quarantine));
        Self { route: slot(SlotKind::Route), batch: slot(SlotKind::Batch), cache: slot(SlotKind::Cache) }
    }

    /// One of them; none for a slot that no engine asks.
    pub fn get(&mut self, kind: SlotKind) -> Option<&mut PolicySlot> {
        match kind {
            SlotKind::Route => Some(&mut self.route),
            SlotKind::Batch => Some(&mut self.batch),
            SlotKind::Cache => Some(&mut self.cache),
            SlotKind::Place => None,
        }
    }

    /// A request has ended: how fast it was.
    pub fn observe(&mut self, request: RequestId, sample: Sample) {
        let next = self.route.next_request;
        self.iter_mut().for_each(|slot| slot.observe(request, next, sample));
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PolicySlot> {
        [&mut self.route, &mut self.batch, &mut self.cache].into_iter()
    }
}

impl Policies for Slots {
    fn route(&mut self) -> &mut dyn RoutePolicy {
        &mut self.route
    }

    fn batch(&mut self) -> Option<&mut dyn WindowPolicy> {
        Some(&mut self.batch)
    }

    fn cache(&mut self) -> Option<&mut dyn WindowPolicy> {
        Some(&mut self.cache)
    }
}
