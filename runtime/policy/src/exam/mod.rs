//! What every policy must hold, whatever it decides: checked on random histories and on traffic, in WebAssembly.
//!
//! `pointsman policy test` runs it for authors; the tests of the shipped policies run it, too. A server's own checks (`trial`,
//! the rehearsal) are quicker and see less.

pub mod scenes;
pub mod traffic;
pub mod windows;
pub mod world;

use std::fmt;

use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::port::{Overlap, Waiting};
use pointsman_engine::window::Kind;

use crate::artifact::Artifact;
use crate::host::{Policy, PolicyHost};
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::refuse::RefuseReason;
use crate::slot::{Guard, Slots, pulled};
use crate::versions::v0_1::Saved;
use traffic::Traffic;
use world::World;

/// Questions of one history.
const STEPS: u32 = 16;
/// Requests of one run of traffic.
const REQUESTS: u64 = 300;

/// The properties, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// No call faults, whatever the events, sizes and times.
    NeverFaults,
    /// A request is only sent to a chain that takes it; what is named is in the window, and named once.
    AnswersFit,
    /// The same history gives the same answers and takes the same fuel.
    Deterministic,
    /// Kinds of events that are not known yet change nothing.
    IgnoresUnknownEvents,
    /// A successor goes on from what was saved, and from any other bytes.
    SurvivesRestarts,
    /// On traffic, every request is answered and none starves.
    ServesEverybody,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NeverFaults,
        Self::AnswersFit,
        Self::Deterministic,
        Self::IgnoresUnknownEvents,
        Self::SurvivesRestarts,
        Self::ServesEverybody,
    ];

    /// Those that a policy in this slot can have or lack.
    pub fn of(slot: SlotKind) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |property| match property {
            Self::IgnoresUnknownEvents => matches!(slot, SlotKind::Route | SlotKind::Batch),
            Self::ServesEverybody => slot != SlotKind::Place,
            _ => true,
        })
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverFaults => "no call faults",
            Self::AnswersFit => "every answer can be followed",
            Self::Deterministic => "the same history gives the same answers and takes the same fuel",
            Self::IgnoresUnknownEvents => "unknown kinds of events change nothing",
            Self::SurvivesRestarts => "a successor goes on from what was saved, and from any other bytes",
            Self::ServesEverybody => "every request is answered and none starves",
        })
    }
}

/// A property that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub property: Property,
    /// One line; names the seed of the history.
    pub detail: String,
}

/// What an exam found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Histories played.
    pub histories: u64,
    /// Questions asked in them.
    pub questions: u64,
    /// Most fuel that a question took.
    pub fuel_max: u64,
    /// At most one finding for each property.
    pub findings: Vec<Finding>,
}

/// Examines a policy in one of its slots, on so many histories.
///
/// # Errors
/// It does not even pass its trial.
pub fn examine(
    host: &PolicyHost,
    slot: SlotKind,
    artifact: &Artifact,
    config: &str,
    histories: u64,
) -> Result<Report, RefuseReason> {
    let policy = host.prepare(slot, artifact, config)?.policy;
    let mut report = Report { histories, ..Report::default() };
    for seed in 0..histories {
        let found = match slot {
            SlotKind::Place => scenes::check(&policy, seed, &mut report),
            slot => History::new(&policy, slot, seed).check(&mut report),
        };
        if let Err(finding) = found {
            report.note(seed, finding);
        }
    }
    let runs = if slot == SlotKind::Place { 0 } else { histories.div_ceil(50) };
    for seed in 0..runs {
        if let Err(finding) = serve(host, slot, artifact, config, seed)? {
            report.note(seed, finding);
        }
    }
    Ok(report)
}

impl Report {
    fn note(&mut self, seed: u64, (property, what): (Property, String)) {
        if self.findings.iter().all(|finding| finding.property != property) {
            self.findings.push(Finding { property, detail: format!("history {seed}: {what}") });
        }
    }
}

type Verdict<T> = Result<T, (Property, String)>;

/// A random history of one slot.
struct History<'a> {
    policy: &'a Policy,
    seed: u64,
    /// The question, in slots that are asked with a window.
    window: Option<Kind>,
    chains: u32,
}

/// An answer, or the fingerprint of one, and the fuel that it took.
type Answers = Vec<(u64, u64)>;

impl<'a> History<'a> {
    fn new(policy: &'a Policy, slot: SlotKind, seed: u64) -> Self {
        let chains = if seed % 16 == 15 { 512 } else { 1 + (seed % 9) as u32 };
        Self { policy, seed, window: slot.window(), chains }
    }

    fn check(&self, report: &mut Report) -> Verdict<()> {
        let first = self.play(false, None)?;
        report.questions += first.len() as u64;
        report.fuel_max = first.iter().map(|(_, fuel)| *fuel).chain([report.fuel_max]).max().unwrap_or(0);
        if self.play(false, None)? != first {
            return Err((Property::Deterministic, "a second run came out differently".into()));
        }
        let noisy = self.play(true, None)?;
        if noisy.iter().map(|(answer, _)| answer).ne(first.iter().map(|(answer, _)| answer)) {
            return Err((Property::IgnoresUnknownEvents, "events of kind 200 changed an answer".into()));
        }
        for garbage in [Vec::new(), vec![0; 64], vec![0xff; 61], (0..=255).collect()] {
            let schema = self.policy.descriptor().state_schema.clone();
            let saved = Saved { schema, seq: 3, bytes: garbage };
            self.play(false, Some(saved)).map_err(|(_, what)| (Property::SurvivesRestarts, what))?;
        }
        Ok(())
    }

    /// Plays the history on a fresh instance, which is exchanged for its successor in the middle if it starts from something
    /// saved.
    fn play(&self, noise: bool, previous: Option<Saved>) -> Verdict<Answers> {
        let mut world = World::new(self.seed, self.chains);
        let restarts = previous.is_some();
        let mut live = self.instance(&world, previous)?;
        let mut answers = Vec::new();
        for step in 0..STEPS {
            let words = self.events(&mut world, noise);
            if restarts && step == STEPS / 2 {
                let saved = live.save().map_err(|fault| faulted("save", &fault))?;
                live = self.instance(&world, saved)?;
            } else if !words.is_empty() {
                live.apply(world.view.seq, &words).map_err(|fault| faulted("apply", &fault))?;
            }
            match self.window {
                None => {
                    answers.push(self.pick(&mut live, &mut world)?);
                    answers.push(pull(&mut live, &mut world)?);
                }
                Some(kind) => answers.push(windows::ask(&mut live, &mut world, kind)?),
            }
        }
        Ok(answers)
    }

    /// What happens before the next question, in words.
    fn events(&self, world: &mut World, noise: bool) -> Vec<u64> {
        let mut words = Vec::new();
        for _ in 0..world.below(9) {
            match self.window {
                None => words.extend(world.event().words()),
                Some(Kind::Step) => words.extend(windows::served(world).words()),
                Some(Kind::Victims) => {}
            }
            if noise && self.window != Some(Kind::Victims) {
                words.extend([200 << 56 | 0xffff_ffff, u64::MAX]);
            }
        }
        words
    }

    fn instance(&self, world: &World, previous: Option<Saved>) -> Verdict<Instance> {
        self.policy.start(&world.view, previous).map_err(|fault| faulted("init", &fault))
    }

    fn pick(&self, live: &mut Instance, world: &mut World) -> Verdict<(u64, u64)> {
        let ask = world.pick();
        let overlap: Vec<u64> = world.overlap(&ask).into_iter().map(Overlap::word).collect();
        let asked = self.policy.descriptor().needs_overlap.then_some(overlap.as_slice());
        let word = live.pick(&ask, asked).map_err(|fault| faulted("pick", &fault))?;
        match RouteDecision::decode(word) {
            Err(fault) => Err((Property::AnswersFit, fault.detail)),
            Ok(RouteDecision::Dispatch(chain)) => {
                let takes = world.view.chains.get(chain.0 as usize).is_some_and(|chain| chain.takes(ask.reserve));
                let what = || format!("pick: chain {} can not take {} tokens", chain.0, ask.reserve);
                if takes { Ok((word, live.fuel_used())) } else { Err((Property::AnswersFit, what())) }
            }
            Ok(_) => Ok((word, live.fuel_used())),
        }
    }
}

fn pull(live: &mut Instance, world: &mut World) -> Verdict<(u64, u64)> {
    let (ask, waiting) = world.pull();
    let words: Vec<u64> = waiting.iter().flat_map(Waiting::words).collect();
    let index = live.pull(&ask, &words).map_err(|fault| faulted("pull", &fault))?;
    let fits = match pulled(index, waiting.len()) {
        Err(fault) => return Err((Property::AnswersFit, fault.detail)),
        Ok(None) => true,
        Ok(Some(at)) => {
            let chain = world.view.chains.get(ask.chain.0 as usize);
            chain.is_some_and(|chain| chain.takes(waiting[at as usize].reserve))
        }
    };
    let what = || format!("pull: request {index} does not fit chain {}", ask.chain.0);
    if fits { Ok((index.into(), live.fuel_used())) } else { Err((Property::AnswersFit, what())) }
}

/// Which property a fault of this call breaks.
fn faulted(call: &str, fault: &Fault) -> (Property, String) {
    match fault.class {
        FaultClass::Invalid => (Property::AnswersFit, fault.detail.clone()),
        _ => (Property::NeverFaults, format!("{call}: {fault}")),
    }
}

/// Serves traffic under the policy.
fn serve(
    host: &PolicyHost,
    slot: SlotKind,
    artifact: &Artifact,
    config: &str,
    seed: u64,
) -> Result<Verdict<()>, RefuseReason> {
    let candidate = host.prepare(slot, artifact, config)?;
    let mut slots = Slots::default();
    let Some(examined) = slots.get(slot) else { return Ok(Ok(())) };
    drop(examined.swap_in(candidate, Guard { faults: false, ..Guard::default() }));
    let Ok(mut traffic) = Traffic::new(slots, 1 + (seed % 4) as usize, seed) else { return Ok(Ok(())) };
    traffic.run(REQUESTS, 8 + (seed % 5) as usize * 8);
    let faults = traffic.slots.get(slot).map_or_else(Default::default, |examined| examined.report().faults);
    let stalls = FaultClass::ALL.iter().zip(faults).find(|(class, _)| **class == FaultClass::Stall);
    Ok(match (stalls.map_or(0, |(_, count)| count), faults.iter().sum::<u64>()) {
        (0, 0) => Ok(()),
        (0, some) => Err((Property::NeverFaults, format!("{some} faults in {REQUESTS} requests of traffic"))),
        (some, _) => Err((Property::ServesEverybody, format!("{some} requests starved"))),
    })
}
