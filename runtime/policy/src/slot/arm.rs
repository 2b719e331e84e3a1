//! One side that decides: the builtin or a policy, with its instance, its strikes, its books, and its share of the log.
//!
//! A policy that faults loses its instance at once, and a fresh one is made when the engine hands over its next view.

use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{RouteEvent, Snapshot};
use pointsman_engine::window::{Ask, Kind};

use crate::host::{Candidate, Policy};
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::limits::LOG_REFILL_CALLS;
use crate::record::Tap;
use crate::record::frame::{Outcome, fingerprint};
use crate::slot::{Guard, Retired, pulled};
use crate::strikes::Strikes;
use crate::versions::v0_1::Saved;

/// A policy and its instance, or the builtin.
pub(super) struct Arm {
    /// 0 in charge, 1 challenger; its mark in the log.
    pub number: u8,
    slot: SlotKind,
    generation: u64,
    mind: Mind,
    /// When it is taken out.
    pub guard: Guard,
    /// Faults since it came in, in the order of [`FaultClass::ALL`].
    pub faults: [u64; FaultClass::ALL.len()],
}

enum Mind {
    Builtin(Builtin),
    Policy(Box<Guest>),
}

struct Guest {
    policy: Policy,
    /// Made ahead, for the next `init`.
    fresh: Option<Instance>,
    /// Has a view.
    live: Option<Instance>,
    /// What the policy before it, or its own last instance, saved; for the next `init` only.
    handover: Option<Saved>,
    strikes: Strikes,
    calls: u32,
}

/// What must happen to an arm after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    /// That was one fault too many.
    TooMany,
}

impl Arm {
    pub fn builtin(slot: SlotKind, generation: u64) -> Self {
        let (mind, guard) = (Mind::Builtin(Builtin::default()), Guard::default());
        Self { number: 0, slot, generation, mind, guard, faults: Default::default() }
    }

    pub fn policy(
        number: u8,
        generation: u64,
        policy: Policy,
        fresh: Option<Instance>,
        handover: Option<Saved>,
    ) -> Self {
        let (slot, strikes) = (policy.slot(), Strikes::default());
        let guest = Guest { policy, fresh, live: None, handover, strikes, calls: 0 };
        let (mind, guard) = (Mind::Policy(Box::new(guest)), Guard::default());
        Self { number, slot, generation, mind, guard, faults: Default::default() }
    }

    pub fn candidate(number: u8, generation: u64, candidate: Candidate, handover: Option<Saved>, guard: Guard) -> Self {
        let arm = Self::policy(number, generation, candidate.policy, Some(candidate.fresh), handover);
        Self { guard, ..arm }
    }

    /// The policy, if it is not the builtin.
    pub fn who(&self) -> Option<&Policy> {
        match &self.mind {
            Mind::Builtin(_) => None,
            Mind::Policy(guest) => Some(&guest.policy),
        }
    }

    /// Fuel that the last call took; 0 without a view.
    pub fn fuel_used(&self) -> u64 {
        match &self.mind {
            Mind::Builtin(_) => 0,
            Mind::Policy(guest) => guest.live.as_ref().map_or(0, Instance::fuel_used),
        }
    }

    /// Moves it to another place in the log.
    pub fn rename(&mut self, number: u8, generation: u64) {
        (self.number, self.generation) = (number, generation);
    }

    /// Asks for what a successor should know. Nothing if it has no view or fails to say.
    pub fn save(&mut self) -> Option<Saved> {
        let Mind::Policy(guest) = &mut self.mind else { return None };
        let saved = guest.live.as_mut()?.save();
        let noted = |fault: &Fault| {
            if guest.policy.quota.take().is_some() {
                tracing::warn!(%fault, "the policy could not save its state");
            }
        };
        saved.inspect_err(noted).ok()?
    }

    /// The policy's state for people, as it says. The call is not in the log, so a new part of that begins after it.
    pub fn dump(&mut self) -> Option<Result<String, Fault>> {
        let Mind::Policy(guest) = &mut self.mind else { return None };
        let dumped = guest.live.as_mut()?.dump();
        match &dumped {
            Ok(_) => self.start_afresh(),
            Err(_) => guest.live = None,
        }
        Some(dumped)
    }

    /// Takes the arm apart, into what is kept and what may be dropped elsewhere.
    pub fn retire(self) -> (Option<Policy>, Retired) {
        match self.mind {
            Mind::Builtin(_) => (None, Retired::default()),
            Mind::Policy(guest) => (Some(guest.policy), Retired { instance: guest.live.or(guest.fresh), policy: None }),
        }
    }

    pub fn wants_snapshot(&self) -> bool {
        match &self.mind {
            Mind::Builtin(builtin) => builtin.wants_snapshot(),
            Mind::Policy(guest) => guest.live.is_none(),
        }
    }

    pub fn wants_overlap(&self) -> bool {
        self.who().is_some_and(|policy| policy.descriptor().needs_overlap)
    }

    /// Forgets the view, so that the next one begins a new chunk of the log. A policy's state goes over to its next instance.
    pub fn start_afresh(&mut self) {
        let saved = self.save();
        match &mut self.mind {
            Mind::Builtin(builtin) => *builtin = Builtin::default(),
            Mind::Policy(guest) if guest.live.is_some() => {
                guest.live = None;
                guest.handover = saved;
            }
            Mind::Policy(_) => {}
        }
    }

    /// Hands over the whole view.
    pub fn init(&mut self, snapshot: &Snapshot, tap: &mut Tap) -> Result<(), Fault> {
        let (outcome, previous, fuel) = match &mut self.mind {
            Mind::Builtin(builtin) => (builtin.init(snapshot), None, 0),
            Mind::Policy(guest) => guest.init(snapshot, tap.is_on()),
        };
        let (digest, name, config) = self.who().map_or((None, "builtin", ""), |policy| {
            (Some(policy.digest()), &*policy.descriptor().name, policy.config())
        });
        let how = Outcome::of(outcome.as_ref().map(|()| 0), fuel);
        let (number, slot, generation) = (self.number, self.slot, self.generation);
        tap.write(|log| log.start(number, slot, generation, digest, name, config, snapshot, previous.as_ref(), how));
        outcome
    }

    /// Hands over what changed. Does nothing without a view: what changes meanwhile is in the next one.
    pub fn apply(&mut self, seq: u64, events: &[RouteEvent], words: &[u64], tap: &mut Tap) -> Result<(), Fault> {
        let (outcome, fuel) = match &mut self.mind {
            Mind::Builtin(builtin) => (builtin.apply(seq, events), 0),
            Mind::Policy(guest) => match &mut guest.live {
                Some(live) => (live.apply(seq, words), live.fuel_used()),
                None => return Ok(()),
            },
        };
        let (number, how) = (self.number, Outcome::of(outcome.as_ref().map(|()| 0), fuel));
        tap.write(|log| log.apply(number, seq, words, how));
        outcome
    }

    pub fn pick(&mut self, ask: &Pick, overlap: &[Overlap], tap: &mut Tap) -> Result<RouteDecision, Fault> {
        let words: Vec<u64>;
        let (word, fuel, affine) = match &mut self.mind {
            Mind::Builtin(builtin) => (builtin.pick(ask, overlap).map(RouteDecision::encode), 0, None),
            Mind::Policy(guest) => {
                let affine = if guest.policy.descriptor().needs_overlap {
                    words = overlap.iter().map(|overlap| overlap.word()).collect();
                    Some(words.as_slice())
                } else {
                    None
                };
                let (word, fuel) = guest.decide(|live| live.pick(ask, affine), |_| true);
                (word, fuel, affine)
            }
        };
        let (number, how) = (self.number, Outcome::of(word.as_ref().copied(), fuel));
        tap.write(|log| log.pick(number, ask, affine, how));
        RouteDecision::decode(word?)
    }

    pub fn pull(&mut self, ask: &Pull, waiting: &[Waiting], tap: &mut Tap) -> Result<Option<u32>, Fault> {
        let words: Vec<u64> = if tap.is_on() || self.who().is_some() {
            waiting.iter().flat_map(Waiting::words).collect()
        } else {
            Vec::new()
        };
        let (index, fuel) = match &mut self.mind {
            Mind::Builtin(builtin) => (builtin.pull(ask, waiting).map(|index| index.unwrap_or(u32::MAX)), 0),
            // To take nothing is easy, and makes up for no fault.
            Mind::Policy(guest) => guest.decide(|live| live.pull(ask, &words), |index| *index != u32::MAX),
        };
        let (number, how) = (self.number, Outcome::of(index.as_ref().map(|index| u64::from(*index)), fuel));
        tap.write(|log| log.pull(number, ask, &words, how));
        pulled(index?, waiting.len())
    }

    /// Appends the answer to `answer`.
    pub fn window(
        &mut self,
        kind: Kind,
        ask: &Ask,
        window: &[u64],
        answer: &mut Vec<u64>,
        tap: &mut Tap,
    ) -> Result<(), Fault> {
        let (outcome, fuel) = match &mut self.mind {
            Mind::Builtin(_) => {
                kind.builtin(ask, window.len() / kind.words(), answer);
                (Ok(()), 0)
            }
            Mind::Policy(guest) => guest.decide(|live| live.window(kind, ask, window, answer), |()| true),
        };
        let (number, how) = (self.number, Outcome::of(outcome.as_ref().map(|()| fingerprint(answer)), fuel));
        tap.write(|log| log.ask(number, kind, ask, window, how, answer));
        outcome
    }

    /// The engine moves on: an answer that it has not refused by now was good.
    pub fn settle(&mut self) {
        if let Mind::Policy(guest) = &mut self.mind {
            guest.strikes.settle();
        }
    }

    /// Books a fault. With `dies` the instance is gone; a refused answer costs a strike only.
    pub fn book(&mut self, fault: &Fault, dies: bool) -> After {
        self.faults[fault.class.index()] += 1;
        let Mind::Policy(guest) = &mut self.mind else {
            // The builtin reads the same tables as the guard; a stale view is the only way here, and the next one renews it.
            self.mind = Mind::Builtin(Builtin::default());
            return After::GoOn;
        };
        guest.book(fault, dies)
    }
}

impl Guest {
    /// The outcome, a copy of what the new instance was told of its predecessor (if `copy`), and the fuel.
    fn init(&mut self, snapshot: &Snapshot, copy: bool) -> (Result<(), Fault>, Option<Saved>, u64) {
        self.live = None;
        let mut instance = match self.fresh.take().map_or_else(|| self.policy.instantiate(), Ok) {
            Ok(instance) => instance,
            Err(fault) => return (Err(fault), None, 0),
        };
        let handover = self.handover.take();
        let previous = handover.clone().filter(|_| copy);
        let outcome = instance.init(self.policy.config(), snapshot, handover);
        let fuel = instance.fuel_used();
        if outcome.is_ok() {
            self.live = Some(instance);
        }
        (outcome, previous, fuel)
    }

    /// Asks the live instance for a decision; `counts` says whether an answer makes up for faults.
    fn decide<R>(
        &mut self,
        ask: impl FnOnce(&mut Instance) -> Result<R, Fault>,
        counts: impl FnOnce(&R) -> bool,
    ) -> (Result<R, Fault>, u64) {
        self.calls += 1;
        if self.calls == LOG_REFILL_CALLS {
            self.calls = 0;
            self.policy.quota.refill();
        }
        let Some(live) = &mut self.live else { return (Err(no_view()), 0) };
        let answer = ask(live);
        let fuel = live.fuel_used();
        if answer.as_ref().is_ok_and(counts) {
            self.strikes.answered();
        }
        (answer, fuel)
    }

    fn book(&mut self, fault: &Fault, dies: bool) -> After {
        if dies {
            self.live = None;
        }
        let too_many = self.strikes.fault();
        let policy = &*self.policy.descriptor().name;
        if self.policy.quota.take().is_some() {
            tracing::warn!(policy, %fault, "the policy's answer is not used");
        }
        if too_many { After::TooMany } else { After::GoOn }
    }
}

fn no_view() -> Fault {
    Fault::new(FaultClass::Init, "the policy was asked before it had a view")
}
