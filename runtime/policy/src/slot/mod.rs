//! A slot: who decides, what happens when they fail, and how they are exchanged between two decisions.
//!
//! Owned by the engine's driver thread, which asks it through [`RoutePolicy`] or [`WindowPolicy`](pointsman_engine::window::WindowPolicy) and changes it between two
//! questions. With no policy the native builtin answers; that is no fault. In the `route` slot a *challenger* may decide a share of the requests beside the policy in
//! charge; both are told of every change. Who is asked about a new request depends on its number alone; who is asked which waiting
//! request takes a chain's room, on that question's random bits. The other slots' questions are about many requests at once, so
//! there nobody can be on trial for a share of them.
//!
//! Policies that misbehave are taken out by the slot itself, as [`Guard`] says, and what was there before decides again.

mod arm;
mod automatic;
mod report;
mod watch;
mod window;

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::RequestId;
use pointsman_engine::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::random;
use pointsman_engine::snapshot::{RouteEvent, Snapshot};

use crate::host::{Candidate, Policy};
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::limits::REPLACED_MAX;
use crate::quarantine::Quarantine;
use crate::record::Tap;
use crate::slo::Trial;
use arm::{After, Arm};
pub use automatic::{Guard, Notice};
pub use report::{Challenge, PolicyCard, SlotReport};
use watch::{Recent, Watch};
pub use window::Slots;

/// What left the slot for good. Dropping it unmaps memory, about 30 µs: do so off the engine's thread.
#[derive(Default)]
#[must_use = "drop it off the engine's thread"]
pub struct Retired {
    #[expect(dead_code, reason = "kept to be dropped elsewhere")]
    instance: Option<Instance>,
    policy: Option<Policy>,
}

/// The slot can not be changed in this way now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// Nothing was here before.
    #[error("the slot has not been changed yet, so there is nothing to roll back to")]
    NothingBefore,
    /// A question of this slot is about many requests at once.
    #[error("a policy can be on trial for a share of the requests in the slot `route` only; try it as a shadow")]
    NoShares,
    /// There is no challenger.
    #[error("no policy is on trial in this slot, so there is nothing to promote")]
    NoChallenger,
}

/// A policy that decides a share of the requests.
struct Challenger {
    arm: Arm,
    /// In hundredths of a per cent.
    share: u32,
    trial: Trial,
    /// Requests before this number were decided by others.
    since: u64,
}

/// The slot.
pub struct PolicySlot {
    kind: SlotKind,
    incumbent: Arm,
    challenger: Option<Challenger>,
    /// Times of requests under the one in charge, and its comparison with the one before.
    recent: Recent,
    watch: Option<Watch>,
    /// What was here before the last change: a policy, or `Some(None)` for the builtin.
    previous: Option<Option<Policy>>,
    generation: u64,
    quarantine: Arc<Quarantine>,
    last_fault: Option<Fault>,
    /// Which arm was asked last: false for the incumbent.
    challenger_asked: bool,
    /// Which arm was asked last to choose among those who wait.
    pulled_by_challenger: bool,
    /// One more than the largest number of a request that was asked about.
    next_request: u64,
    /// The request that was asked about last.
    last_pick: u64,
    /// Requests that the builtin decided in a policy's place during a trial, which say nothing about either arm.
    replaced: BTreeSet<u64>,
    /// Epoch and number of the chains that views have been of.
    topology: (u64, usize),
    tap: Tap,
    /// A new part of the log should begin.
    page_is_full: bool,
    words: Vec<u64>,
    notices: Vec<Notice>,
}

impl Default for PolicySlot {
    fn default() -> Self {
        Self::new(SlotKind::Route, Tap::default(), Arc::default())
    }
}

impl PolicySlot {
    /// A slot in which the builtin decides. What happens in it is recorded through `tap`; policies that it takes out get a strike
    /// in `quarantine`.
    #[must_use]
    pub fn new(kind: SlotKind, tap: Tap, quarantine: Arc<Quarantine>) -> Self {
        Self {
            kind,
            incumbent: Arm::builtin(kind, 0),
            challenger: None,
            recent: Recent::default(),
            watch: None,
            previous: None,
            generation: 0,
            next_request: 0,
            pulled_by_challenger: false,
            replaced: BTreeSet::new(),
            last_pick: 0,
            quarantine,
            last_fault: None,
            challenger_asked: false,
            topology: (0, 0),
            tap,
            page_is_full: false,
            words: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Puts `candidate` in charge from the next decision on. The policy before it is asked to save its state, within its
    /// budget, and is kept for [`Self::rollback`]. A challenger leaves.
    pub fn swap_in(&mut self, candidate: Candidate, guard: Guard) -> Retired {
        let saved = self.incumbent.save();
        let watch = guard.watch.and_then(|margin| std::mem::take(&mut self.recent).watch(margin));
        let retired = self.replace(Arm::candidate(0, self.generation + 1, candidate, saved, guard));
        self.watch = watch;
        retired
    }

    /// Lets `candidate` decide `share` of the requests, in hundredths of a per cent, beside the one in charge. It takes the place
    /// of an earlier challenger.
    ///
    /// # Errors
    /// This slot has no shares.
    pub fn challenge(&mut self, candidate: Candidate, share: u32, guard: Guard) -> Result<Retired, NotNow> {
        if self.kind != SlotKind::Route {
            return Err(NotNow::NoShares);
        }
        let saved = self.incumbent.save();
        self.generation += 1;
        let arm = Arm::candidate(1, self.generation, candidate, saved, guard);
        self.replaced.clear();
        let before =
            self.challenger.replace(Challenger { arm, share, trial: Trial::new(guard.slo), since: self.next_request });
        Ok(before.map_or_else(Retired::default, |before| before.arm.retire().1))
    }

    /// Puts the challenger in charge of everything, with the state that it has.
    ///
    /// # Errors
    /// There is none.
    pub fn promote(&mut self) -> Result<Retired, NotNow> {
        let mut arm = self.challenger.take().ok_or(NotNow::NoChallenger)?.arm;
        arm.rename(0, self.generation + 1);
        // A new part of the log: what follows belongs to arm 0.
        arm.start_afresh();
        Ok(self.replace(arm))
    }

    /// Ends a trial, or else exchanges the one in charge with the one before it; twice is back again. Runs no guest code until
    /// the next view is handed over.
    ///
    /// # Errors
    /// Nothing was here before.
    pub fn rollback(&mut self) -> Result<Retired, NotNow> {
        if let Some(challenger) = self.challenger.take() {
            self.generation += 1;
            return Ok(challenger.arm.retire().1);
        }
        let before = self.previous.take().ok_or(NotNow::NothingBefore)?;
        let arm = self.arm_of(before);
        Ok(self.replace(arm))
    }

    /// The next one in charge: a policy that was here before, or the builtin.
    fn arm_of(&self, policy: Option<Policy>) -> Arm {
        match policy {
            Some(policy) => Arm::policy(0, self.generation + 1, policy, None, None),
            None => Arm::builtin(self.kind, self.generation + 1),
        }
    }

    /// Lets the builtin decide. Runs no guest code at all. Without a policy nothing changes.
    pub fn eject(&mut self) -> Retired {
        if self.incumbent.who().is_none() && self.challenger.is_none() {
            return Retired::default();
        }
        self.replace(self.arm_of(None))
    }

    /// Exchanges the one in charge; a challenger leaves.
    fn replace(&mut self, next: Arm) -> Retired {
        let last = std::mem::replace(&mut self.incumbent, next);
        self.forget_times();
        let (policy, mut retired) = last.retire();
        retired.policy = self.previous.replace(policy).flatten();
        if let Some(challenger) = self.challenger.take() {
            self.dismiss(challenger);
        }
        self.generation += 1;
        retired
    }

    /// What follows has nothing to be compared with.
    fn forget_times(&mut self) {
        (self.recent, self.watch) = (Recent::default(), None);
    }

    /// Begins a new part of the log, from which it can be replayed: everyone is started afresh before the next question.
    pub fn start_afresh(&mut self) {
        self.incumbent.start_afresh();
        if let Some(challenger) = &mut self.challenger {
            challenger.arm.start_afresh();
        }
    }

    /// Hands over what has been recorded.
    pub fn flush(&mut self) {
        self.tap.flush();
    }

    /// Fuel that the last call took; 0 for the builtin.
    #[must_use]
    pub fn fuel_used(&self) -> u64 {
        self.arm(self.challenger_asked).fuel_used()
    }

    /// Which slot it is.
    #[must_use]
    pub fn kind(&self) -> SlotKind {
        self.kind
    }

    /// The generation; grows with every change of who decides.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The state of the policy in charge for people, as it says; none for the builtin or without a view.
    pub fn dump(&mut self) -> Option<Result<String, Fault>> {
        self.incumbent.dump()
    }

    /// Whether the challenger decides about this request.
    #[must_use]
    pub fn is_challengers(&self, request: RequestId) -> bool {
        self.challenger
            .as_ref()
            .is_some_and(|challenger| request.0 >= challenger.since && draws(request.0, challenger.share))
    }

    /// The challenger's arm if it is asked for and there is one, else that of the one in charge.
    fn arm(&self, challenger: bool) -> &Arm {
        match &self.challenger {
            Some(other) if challenger => &other.arm,
            _ => &self.incumbent,
        }
    }

    /// The arm that was asked last.
    fn asked(&mut self) -> &mut Arm {
        match &mut self.challenger {
            Some(challenger) if self.challenger_asked => &mut challenger.arm,
            _ => &mut self.incumbent,
        }
    }

    /// Runs a question on an arm and books its fault.
    fn ask<R>(
        &mut self,
        challenger: bool,
        decides: bool,
        ask: impl FnOnce(&mut Arm, &mut Tap) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.challenger_asked = challenger;
        let arm = match &mut self.challenger {
            Some(challenger) if self.challenger_asked => &mut challenger.arm,
            _ => &mut self.incumbent,
        };
        // Without a view it faulted while it was told what changed, and that has been booked.
        let is_news = !decides || !arm.wants_snapshot();
        arm.settle();
        let outcome = ask(arm, &mut self.tap);
        if let Err(fault) = &outcome
            && is_news
        {
            let after = arm.book(fault, true);
            self.after(fault, after);
        }
        outcome
    }

    /// Begins a new chunk of the log when the last one is full.
    fn turn_the_page(&mut self) {
        if self.tap.wants_start() {
            self.start_afresh();
        }
    }

    /// A refused answer is a strike, but the instance and its view stay.
    fn refuse(&mut self, why: &Fault) {
        let arm = self.asked();
        let number = arm.number;
        let after = arm.book(why, false);
        self.tap.write(|log| log.refused(number, why.class));
        self.after(why, after);
    }

    /// A policy let somebody starve: that is enough.
    fn starved(&mut self, challenger: bool, what: String) {
        let fault = Fault::new(FaultClass::Stall, what);
        self.challenger_asked = challenger;
        let arm = self.asked();
        if arm.who().is_some() {
            let _ = arm.book(&fault, false);
            self.last_fault = Some(fault.clone());
            self.misbehaved(challenger, &fault.to_string());
        }
    }

    fn after(&mut self, fault: &Fault, after: After) {
        self.last_fault = Some(fault.clone());
        if after == After::TooMany {
            self.misbehaved(self.challenger_asked, &format!("it faulted too often, last with {fault}"));
        }
    }
}

/// Whether a request falls into a share, in hundredths of a per cent. Requests are numbered in order, so the number is mixed.
fn draws(request: u64, share: u32) -> bool {
    random::bits(0x706f_696e_7473, request) % 10_000 < u64::from(share)
}

/// Checks an index that a policy pulled; all ones are none.
pub(crate) fn pulled(index: u32, waiting: usize) -> Result<Option<u32>, Fault> {
    match index {
        u32::MAX => Ok(None),
        index if (index as usize) < waiting => Ok(Some(index)),
        index => {
            let detail = format!("pull: index {index} of {waiting} waiting requests");
            Err(Fault::new(FaultClass::Invalid, detail))
        }
    }
}

impl RoutePolicy for PolicySlot {
    fn wants_snapshot(&self) -> bool {
        self.incumbent.wants_snapshot() || self.challenger.as_ref().is_some_and(|it| it.arm.wants_snapshot())
    }

    fn wants_overlap(&self) -> bool {
        self.incumbent.wants_overlap() || self.challenger.as_ref().is_some_and(|it| it.arm.wants_overlap())
    }

    /// Whoever has a view already is told the whole state as events: those that led here have not been told.
    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        let topology = (snapshot.epoch, snapshot.chains.len());
        if std::mem::replace(&mut self.topology, topology) != topology {
            // Other chains are more than events can tell.
            self.start_afresh();
        }
        let events = snapshot.as_events();
        let words: Vec<u64> = events.iter().flat_map(|event| event.words()).collect();
        let tell = |arm: &mut Arm, tap: &mut Tap| {
            if arm.wants_snapshot() { arm.init(snapshot, tap) } else { arm.apply(snapshot.seq, &events, &words, tap) }
        };
        let outcome = self.ask(false, false, tell);
        if self.challenger.is_some() {
            // Its fault is its own affair: the one in charge is ready.
            let _ = self.ask(true, false, tell);
        }
        outcome
    }

    fn apply(&mut self, seq: u64, events: &[RouteEvent]) -> Result<(), Fault> {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words.extend(events.iter().flat_map(|event| event.words()));
        let outcome = self.ask(false, false, |arm, tap| arm.apply(seq, events, &words, tap));
        if self.challenger.is_some() {
            let _ = self.ask(true, false, |arm, tap| arm.apply(seq, events, &words, tap));
        }
        self.words = words;
        outcome
    }

    fn pick(&mut self, ask: &Pick, overlap: &[Overlap]) -> Result<RouteDecision, Fault> {
        let challenger = self.is_challengers(ask.id);
        self.last_pick = ask.id.0;
        self.next_request = self.next_request.max(ask.id.0.saturating_add(1));
        let answer = self.ask(challenger, true, |arm, tap| arm.pick(ask, overlap, tap));
        if matches!(answer, Ok(RouteDecision::Reject(_))) {
            self.observe_rejection(ask.id);
        }
        self.turn_the_page();
        answer
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault> {
        let challenger = self.challenger.as_ref().is_some_and(|challenger| draws(ask.rnd, challenger.share));
        self.pulled_by_challenger = challenger && self.challenger.is_some();
        let answer = self.ask(challenger, true, |arm, tap| arm.pull(ask, waiting, tap));
        self.turn_the_page();
        answer
    }

    fn refused(&mut self, why: &Fault) {
        self.refuse(why);
    }

    fn replaced(&mut self, answer: u64) {
        let number = self.asked().number;
        self.tap.write(|log| log.replaced(number, answer));
        if self.challenger.is_some() && self.replaced.len() < REPLACED_MAX {
            self.replaced.insert(self.last_pick);
        }
    }

    fn stalled(&mut self, request: RequestId) {
        // Both were asked which request takes the room; the one that declined last is to blame.
        let challenger = self.pulled_by_challenger && self.challenger.is_some();
        self.starved(challenger, format!("request {} fitted and was left waiting for too long", request.0));
    }
}
