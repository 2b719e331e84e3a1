//! What the decision log is for: the same decisions again ([`Replay`]), other decisions on the same questions ([`rival`]), live
//! ([`shadow`]), and the reasons behind one of them ([`explain`]).
//!
//! A policy sees nothing but what the log holds, so a replay on any machine gives the same answers and uses the same fuel, and a
//! call that ran out of fuel ends at the same point again. The one exception is the wall-clock backstop: a call that it ended is
//! taken as recorded.

pub mod explain;
pub mod rival;
pub mod shadow;

use std::collections::BTreeMap;

use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::RouteEvent;

use crate::artifact::{Artifact, Digest};
use crate::host::{Policy, PolicyHost};
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::record::frame::{Asked, Body, Frame, Outcome, Start, fingerprint};
use crate::refuse::RefuseReason;
use crate::slot::pulled;

/// Finds the bytes behind a digest.
pub type Find<'a> = &'a dyn Fn(Digest) -> Option<Artifact>;

/// A log can not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log needs a policy that is not at hand.
    #[error("frame {frame} needs the policy {name} ({digest}), which is not here")]
    Missing {
        /// Where it comes in.
        frame: u64,
        /// Its name.
        name: String,
        /// Its digest.
        digest: Digest,
    },
    /// A policy that is at hand does not load.
    #[error(transparent)]
    Refused(#[from] RefuseReason),
}

/// A decision that came out differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of its frame.
    pub frame: u64,
    /// What was asked.
    pub call: &'static str,
    /// What the log says.
    pub recorded: Outcome,
    /// What came out now.
    pub replayed: Outcome,
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Frames read.
    pub frames: u64,
    /// Questions put again.
    pub decisions: u64,
    /// Calls that ended in a fault, in the log and again.
    pub faults: u64,
    /// Decisions that were not recorded, or whose policy had no view in the log.
    pub skipped: u64,
    /// How many came out differently.
    pub differences: u64,
    /// The first of them.
    pub first: Option<Difference>,
}

/// Who is on an arm during a replay.
enum Subject {
    Builtin(Builtin),
    Guest(Box<Instance>),
}

/// Plays a log back through the policies that made it.
pub struct Replay<'a> {
    host: &'a PolicyHost,
    find: Find<'a>,
    known: BTreeMap<(SlotKind, Digest, String), Policy>,
    arms: [Option<Subject>; 2],
    report: ReplayReport,
}

impl<'a> Replay<'a> {
    /// Nothing played yet.
    pub fn new(host: &'a PolicyHost, find: Find<'a>) -> Self {
        Self { host, find, known: BTreeMap::new(), arms: [None, None], report: ReplayReport::default() }
    }

    /// What was found so far.
    #[must_use]
    pub fn report(&self) -> &ReplayReport {
        &self.report
    }

    /// Plays one frame.
    ///
    /// # Errors
    /// It starts a policy that is not at hand.
    pub fn step(&mut self, number: u64, frame: &Frame) -> Result<(), ReplayError> {
        self.report.frames += 1;
        let arm = usize::from(frame.arm);
        match &frame.body {
            Body::Start(start) => {
                let (subject, replayed) = self.start(number, start)?;
                self.arms[arm] = subject;
                self.compare(number, "init", start.outcome, replayed);
            }
            Body::Apply(seq, words, recorded) => {
                self.again(number, arm, "apply", *recorded, |subject| subject.apply(*seq, words));
            }
            Body::Pick(ask, overlap, recorded) => {
                self.decision(number, arm, "pick", *recorded, |subject| subject.pick(ask, overlap.as_deref()));
            }
            Body::Pull(ask, waiting, recorded) => {
                self.decision(number, arm, "pull", *recorded, |subject| subject.pull(ask, waiting));
            }
            Body::Ask(asked) => {
                self.decision(number, arm, asked.kind.name(), asked.outcome, |subject| subject.window(asked));
            }
            Body::Refused(_) | Body::Replaced(_) => {}
            Body::Lost(frames) => {
                self.report.skipped += frames;
                self.arms = [None, None];
            }
        }
        Ok(())
    }

    /// Whoever decides on an arm at this point of the log: to be asked for a trace.
    fn guest(&mut self, arm: u8) -> Option<&mut Instance> {
        match self.arms[usize::from(arm)].as_mut()? {
            Subject::Builtin(_) => None,
            Subject::Guest(instance) => Some(instance),
        }
    }

    fn start(&mut self, frame: u64, start: &Start) -> Result<(Option<Subject>, Outcome), ReplayError> {
        let Some(digest) = start.digest else {
            let mut builtin = Builtin::default();
            let outcome = Outcome::of(builtin.init(&start.snapshot).map(|()| 0), 0);
            return Ok((Some(Subject::Builtin(builtin)), outcome));
        };
        let key = (start.slot, digest, start.config.clone());
        if !self.known.contains_key(&key) {
            let missing = || ReplayError::Missing { frame, name: start.name.clone(), digest };
            let artifact = (self.find)(digest).ok_or_else(missing)?;
            self.known.insert(key.clone(), self.host.introduce(start.slot, &artifact, &start.config)?);
        }
        let policy = &self.known[&key];
        let mut instance = match policy.instantiate() {
            Ok(instance) => instance,
            Err(fault) => return Ok((None, Outcome::of(Err(fault), 0))),
        };
        let outcome = instance.init(&start.config, &start.snapshot, start.previous.clone()).map(|()| 0);
        let outcome = Outcome::of(outcome, instance.fuel_used());
        Ok((outcome.fault.is_none().then(|| Subject::Guest(Box::new(instance))), outcome))
    }

    fn decision(
        &mut self,
        number: u64,
        arm: usize,
        call: &'static str,
        recorded: Outcome,
        ask: impl FnOnce(&mut Subject) -> (Outcome, bool),
    ) {
        self.report.decisions += 1;
        self.again(number, arm, call, recorded, ask);
    }

    /// Makes a call again. It answers how it ended, and whether the instance survives that.
    fn again(
        &mut self,
        number: u64,
        arm: usize,
        call: &'static str,
        recorded: Outcome,
        ask: impl FnOnce(&mut Subject) -> (Outcome, bool),
    ) {
        self.report.faults += u64::from(recorded.fault.is_some());
        let Some(subject) = self.arms[arm].as_mut() else {
            // It had no view then either; or the log has a gap.
            self.report.skipped += u64::from(recorded.fault != Some(FaultClass::Init));
            return;
        };
        if recorded.fault == Some(FaultClass::Deadline) {
            self.arms[arm] = None;
            return;
        }
        let (replayed, survives) = ask(subject);
        if !survives {
            self.arms[arm] = None;
        }
        self.compare(number, call, recorded, replayed);
    }

    fn compare(&mut self, frame: u64, call: &'static str, recorded: Outcome, replayed: Outcome) {
        if recorded != replayed {
            self.report.differences += 1;
            self.report.first.get_or_insert(Difference { frame, call, recorded, replayed });
        }
    }
}

impl Subject {
    fn apply(&mut self, seq: u64, words: &[u64]) -> (Outcome, bool) {
        match self {
            Self::Builtin(builtin) => {
                let events: Vec<RouteEvent> = events(words).collect();
                (Outcome::of(builtin.apply(seq, &events).map(|()| 0), 0), true)
            }
            Self::Guest(guest) => {
                let outcome = guest.apply(seq, words).map(|()| 0);
                survived(Outcome::of(outcome, guest.fuel_used()), |_| true)
            }
        }
    }

    fn pick(&mut self, ask: &Pick, overlap: Option<&[u64]>) -> (Outcome, bool) {
        match self {
            Self::Builtin(builtin) => (Outcome::of(builtin.pick(ask, &[]).map(RouteDecision::encode), 0), true),
            Self::Guest(guest) => {
                let outcome = guest.pick(ask, overlap);
                survived(Outcome::of(outcome, guest.fuel_used()), |word| RouteDecision::decode(word).is_ok())
            }
        }
    }

    /// A refused answer to such a question does not end the instance.
    fn window(&mut self, asked: &Asked) -> (Outcome, bool) {
        match self {
            Self::Builtin(_) => {
                let mut answer = Vec::new();
                asked.kind.builtin(&asked.ask, asked.window.len() / asked.kind.words(), &mut answer);
                (Outcome { fault: None, answer: fingerprint(&answer), fuel: 0 }, true)
            }
            Self::Guest(guest) => {
                let answer = window(guest, asked).map(|answer| fingerprint(&answer));
                survived(Outcome::of(answer, guest.fuel_used()), |_| true)
            }
        }
    }

    fn pull(&mut self, ask: &Pull, words: &[u64]) -> (Outcome, bool) {
        match self {
            Self::Builtin(builtin) => {
                let index = builtin.pull(ask, &waiting(words)).map(|index| index.unwrap_or(u32::MAX).into());
                (Outcome::of(index, 0), true)
            }
            Self::Guest(guest) => {
                let outcome = guest.pull(ask, words).map(u64::from);
                survived(Outcome::of(outcome, guest.fuel_used()), |index| pulled(index as u32, words.len() / 4).is_ok())
            }
        }
    }
}

/// Asks an instance a question with a window.
fn window(guest: &mut Instance, asked: &Asked) -> Result<Vec<u64>, Fault> {
    let mut answer = Vec::new();
    guest.window(asked.kind, &asked.ask, &asked.window, &mut answer).map(|()| answer)
}

/// A faulty or senseless answer is an instance's last.
fn survived(outcome: Outcome, makes_sense: impl FnOnce(u64) -> bool) -> (Outcome, bool) {
    (outcome, outcome.fault.is_none() && makes_sense(outcome.answer))
}

/// Events that this host knows, from their words.
fn events(words: &[u64]) -> impl Iterator<Item = RouteEvent> {
    words.as_chunks().0.iter().filter_map(|event| RouteEvent::decode(*event))
}

/// The window of a pull, from its words.
fn waiting(words: &[u64]) -> Vec<Waiting> {
    words.as_chunks().0.iter().map(|request| Waiting::decode(*request)).collect()
}

/// What the chains held of a prompt, from its words.
fn overlaps(words: &[u64]) -> impl Iterator<Item = Overlap> {
    words.iter().map(|word| Overlap::decode(*word))
}
