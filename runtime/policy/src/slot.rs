//! The `route` slot: who decides, what happens when they fail, and how they are exchanged between two decisions.
//!
//! Owned by the engine's driver thread, which asks it through [`RoutePolicy`] and changes it between two questions. With no
//! policy the native builtin answers; that is no fault. A policy that faults is dropped at once, and a fresh instance is made
//! when the engine hands over its next view; one that keeps faulting is paused for a counted while.

use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::port::{Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{RouteEvent, Snapshot};

use crate::artifact::Digest;
use crate::breaker::Breaker;
use crate::host::{Candidate, Descriptor, Policy};
use crate::instance::Instance;
use crate::limits::LOG_REFILL_CALLS;
use crate::versions::v0_1::Saved;

/// A policy in the slot, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCard {
    /// What it says of itself.
    pub descriptor: Descriptor,
    /// The digest of its upload.
    pub digest: Digest,
}

/// Who answers at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No policy is in the slot.
    Builtin,
    /// The policy.
    Active,
    /// Nobody here: the policy is paused, and the engine falls back to its builtin.
    Paused,
}

impl Status {
    /// The name used in the operator's view.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Active => "active",
            Self::Paused => "paused",
        }
    }
}

/// The slot's state, copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotReport {
    /// Grows with every swap, rollback and ejection; 0 at the start.
    pub generation: u64,
    /// Who decides; none means the builtin.
    pub active: Option<PolicyCard>,
    /// Whether there is something to roll back to.
    pub can_roll_back: bool,
    /// Who a rollback would bring back; none means the builtin, if [`Self::can_roll_back`].
    pub previous: Option<PolicyCard>,
    /// Who answers at the moment.
    pub status: Status,
    /// Faults of the active policy since it came in, in the order of [`FaultClass::ALL`].
    pub faults: [u64; FaultClass::ALL.len()],
    /// The last fault of any policy in this slot, pauses not counted.
    pub last_fault: Option<Fault>,
}

/// What left the slot for good. Dropping it unmaps memory, about 30 µs: do so off the engine's thread.
#[must_use = "drop it off the engine's thread"]
pub struct Retired {
    _instance: Option<Instance>,
    _policy: Option<Policy>,
}

/// There is nothing to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the slot has not been changed yet, so there is nothing to roll back to")]
pub struct NothingBefore;

/// The active policy and what belongs to its stay in the slot.
struct Active {
    policy: Policy,
    /// Made ahead, for the next `init`.
    fresh: Option<Instance>,
    /// Has a view.
    live: Option<Instance>,
    /// What the policy before it saved, for the first `init` only.
    handover: Option<Saved>,
    breaker: Breaker,
    faults: [u64; FaultClass::ALL.len()],
    calls: u32,
}

/// The slot.
#[derive(Default)]
pub struct RouteSlot {
    builtin: Builtin,
    active: Option<Active>,
    /// What was here before the last change: a policy, or `Some(None)` for the builtin.
    previous: Option<Option<Policy>>,
    generation: u64,
    last_fault: Option<Fault>,
}

impl RouteSlot {
    /// A slot in which the builtin decides.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `candidate` in charge from the next decision on. The policy before it is asked to save its state, within its
    /// budget, and is kept for [`Self::rollback`].
    pub fn swap_in(&mut self, candidate: Candidate) -> Retired {
        let handover = self.active.as_mut().filter(|active| !active.breaker.paused()).and_then(|active| {
            let saved = active.live.as_mut()?.save();
            saved.inspect_err(|fault| tracing::warn!(%fault, "the outgoing policy could not save its state")).ok()?
        });
        let Candidate { policy, fresh } = candidate;
        self.replace(Some(Active::new(policy, Some(fresh), handover)))
    }

    /// Exchanges the active policy (or the builtin) with the one before it; twice is back again. Runs no guest code until the
    /// next view is handed over.
    ///
    /// # Errors
    /// Nothing was here before.
    pub fn rollback(&mut self) -> Result<Retired, NothingBefore> {
        let before = self.previous.take().ok_or(NothingBefore)?;
        Ok(self.replace(before.map(|policy| Active::new(policy, None, None))))
    }

    /// Lets the builtin decide. Runs no guest code at all. Without a policy nothing changes.
    pub fn eject(&mut self) -> Retired {
        match self.active {
            Some(_) => self.replace(None),
            None => Retired { _instance: None, _policy: None },
        }
    }

    fn replace(&mut self, next: Option<Active>) -> Retired {
        let last = std::mem::replace(&mut self.active, next);
        let (instance, policy) = last.map_or((None, None), |last| (last.live.or(last.fresh), Some(last.policy)));
        let dropped = self.previous.replace(policy).flatten();
        // Whatever view the builtin had is out of date once a policy has been told of the changes instead.
        self.builtin = Builtin::default();
        self.generation += 1;
        Retired { _instance: instance, _policy: dropped }
    }

    /// Copies the state out; about a microsecond.
    #[must_use]
    pub fn report(&self) -> SlotReport {
        SlotReport {
            generation: self.generation,
            active: self.active.as_ref().map(|active| card(&active.policy)),
            can_roll_back: self.previous.is_some(),
            previous: self.previous.iter().flatten().next().map(card),
            status: match &self.active {
                None => Status::Builtin,
                Some(active) if active.breaker.paused() => Status::Paused,
                Some(_) => Status::Active,
            },
            faults: self.active.as_ref().map_or_else(Default::default, |active| active.faults),
            last_fault: self.last_fault.clone(),
        }
    }
}

fn card(policy: &Policy) -> PolicyCard {
    PolicyCard { descriptor: policy.descriptor().clone(), digest: policy.digest() }
}

impl Active {
    fn new(policy: Policy, fresh: Option<Instance>, handover: Option<Saved>) -> Self {
        let (breaker, faults) = (Breaker::default(), Default::default());
        Self { policy, fresh, live: None, handover, breaker, faults, calls: 0 }
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        self.live = None;
        let mut instance = match self.fresh.take() {
            Some(instance) => instance,
            None => self.policy.instantiate()?,
        };
        instance.init(self.policy.config(), snapshot, self.handover.take())?;
        self.live = Some(instance);
        Ok(())
    }

    /// Asks the live instance for a decision, unless the policy is paused.
    fn decide<R>(&mut self, ask: impl FnOnce(&mut Instance) -> Result<R, Fault>) -> Result<R, Fault> {
        self.calls += 1;
        if self.calls == LOG_REFILL_CALLS {
            self.calls = 0;
            self.policy.quota.refill();
        }
        if !self.breaker.admit() {
            return Err(Fault::new(FaultClass::Paused, "the policy is paused after repeated faults"));
        }
        let answer = ask(self.live.as_mut().ok_or_else(no_view)?)?;
        self.breaker.answered();
        Ok(answer)
    }

    /// Books a fault: the instance is gone, and the breaker may pause the policy.
    fn book(&mut self, fault: &Fault, dies: bool) {
        if let Some(at) = FaultClass::ALL.iter().position(|class| *class == fault.class) {
            self.faults[at] += 1;
        }
        if fault.class == FaultClass::Paused {
            return;
        }
        if dies {
            self.live = None;
        }
        let pausing = self.breaker.fault();
        let policy = &*self.policy.descriptor().name;
        if self.policy.quota.take().is_some() {
            tracing::warn!(policy, %fault, "the policy's answer is not used");
        }
        if pausing {
            tracing::warn!(policy, "the policy is paused after repeated faults");
        }
    }
}

impl RouteSlot {
    /// Runs `ask` on the active policy and books its fault, or `native` without one.
    fn ask<R>(
        &mut self,
        native: impl FnOnce(&mut Builtin) -> Result<R, Fault>,
        ask: impl FnOnce(&mut Active) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let Some(active) = &mut self.active else { return native(&mut self.builtin) };
        active.breaker.settle();
        let outcome = ask(active);
        if let Err(fault) = &outcome {
            active.book(fault, true);
            if fault.class != FaultClass::Paused {
                self.last_fault = Some(fault.clone());
            }
        }
        outcome
    }

    /// As [`Self::ask`], for a decision. Without a view the policy can not be asked, and that is not its fault.
    fn decide<R>(
        &mut self,
        native: impl FnOnce(&mut Builtin) -> Result<R, Fault>,
        ask: impl FnOnce(&mut Instance) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        if self.active.is_some() && self.wants_snapshot() {
            return Err(no_view());
        }
        self.ask(native, |active| active.decide(ask))
    }
}

fn no_view() -> Fault {
    Fault::new(FaultClass::Init, "the policy was asked before it had a view")
}

impl RoutePolicy for RouteSlot {
    fn wants_snapshot(&self) -> bool {
        match &self.active {
            None => self.builtin.wants_snapshot(),
            Some(active) => active.live.is_none() && !active.breaker.paused(),
        }
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        self.ask(|builtin| builtin.init(snapshot), |active| active.init(snapshot))
    }

    /// Does nothing while the policy has no view: what changes meanwhile is in its next one.
    fn apply(&mut self, seq: u64, events: &[RouteEvent]) -> Result<(), Fault> {
        self.ask(
            |builtin| builtin.apply(seq, events),
            |active| match &mut active.live {
                Some(live) if !events.is_empty() => live.apply(seq, events),
                _ => Ok(()),
            },
        )
    }

    fn pick(&mut self, ask: &Pick) -> Result<RouteDecision, Fault> {
        self.decide(|builtin| builtin.pick(ask), |live| live.pick(ask))
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault> {
        self.decide(|builtin| builtin.pull(ask, waiting), |live| live.pull(ask, waiting))
    }

    /// A refused answer is a strike, but the instance and its view stay.
    fn refused(&mut self, why: &Fault) {
        match &mut self.active {
            None => self.builtin.refused(why),
            Some(active) => {
                active.book(why, false);
                self.last_fault = Some(why.clone());
            }
        }
    }
}
