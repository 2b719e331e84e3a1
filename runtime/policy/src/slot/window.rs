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
        self.page_is_full || self.incumbent.wants_snapshot()
    }

    fn can_answer(&self) -> bool {
        !self.incumbent.wants_snapshot()
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        if std::mem::take(&mut self.page_is_full) {
            self.start_afresh();
        }
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
        // Turned before the next question for which it can be started at once.
        self.page_is_full |= self.tap.wants_start();
        outcome
    }

    fn refused(&mut self, why: &Fault) {
        self.refuse(why);
    }

    fn replaced(&mut self, answer: &[u64]) {
        self.tap.write(|log| log.replaced(0, fingerprint(answer)));
    }

    /// To hold a sequence back is an answer that can be followed, but not for ever.
    fn stalled(&mut self, request: RequestId) {
        let what = format!("request {} was held back in every micro-batch until the engine ran it", request.0);
        self.starved(false, what);
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
    /// Generations of all slots when the last request ended.
    seen: [u64; 3],
    /// Requests with a lower number were there before the last change of any slot.
    since: u64,
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
        let (route, batch, cache) = (slot(SlotKind::Route), slot(SlotKind::Batch), slot(SlotKind::Cache));
        Self { route, batch, cache, seen: [0; 3], since: 0 }
    }

    /// This slot, and the builtin in the others.
    #[must_use]
    pub fn only(slot: PolicySlot) -> Self {
        let mut slots = Self::default();
        if let Some(place) = slots.get(slot.kind()) {
            *place = slot;
        }
        slots
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

    /// A request has ended: how fast it was. Before and after are compared for the slot that was changed last, and only by
    /// requests that came after every change: what another slot does to them is not this one's doing.
    pub fn observe(&mut self, request: RequestId, sample: Sample) {
        let now = [&self.route, &self.batch, &self.cache].map(PolicySlot::generation);
        if now != self.seen {
            let before = std::mem::replace(&mut self.seen, now);
            let slots = self.iter_mut().zip(before.into_iter().zip(now));
            slots.filter(|(_, (before, now))| before == now).for_each(|(slot, _)| slot.forget_times());
            self.since = self.route.next_request;
        }
        let is_settled = request.0 >= self.since;
        self.iter_mut().for_each(|slot| slot.observe(request, is_settled, sample));
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
