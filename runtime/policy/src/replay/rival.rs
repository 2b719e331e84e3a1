//! Another policy on recorded questions: what would it have decided? For shadows, for the rehearsal before a swap, and for
//! `policy replay --with`.
//!
//! The rival is told of everything that was recorded and asked everything that was asked, but the world goes on as it did: its own
//! decisions have no effect. A mirror of the host's tables, folded from the same events, says whether an answer would have been
//! allowed.

use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::ChainId;
use pointsman_engine::snapshot::Snapshot;

use super::{events, waiting, window};
use crate::host::Policy;
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::record::frame::{Asked, Body, Frame, Start, fingerprint};
use crate::slot::pulled;

/// How a rival compares with what was decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RivalReport {
    /// Questions that it was asked.
    pub decisions: u64,
    /// Answers that were the same.
    pub agreed: u64,
    /// Answers that the host's tables would not have allowed.
    pub invalid: u64,
    /// Faults, in the order of [`FaultClass::ALL`].
    pub faults: [u64; FaultClass::ALL.len()],
    /// Questions that it was not asked, because the log has a gap or it had no view after a fault.
    pub missed: u64,
    /// Most fuel that one decision took.
    pub fuel_max: u64,
    /// Fuel of all decisions.
    pub fuel_total: u64,
    /// Where both dispatched, but to different chains: the sum of the differences of the chains' smoothed service times, in
    /// microseconds; positive where the rival's chains are slower.
    pub service_micros: i128,
    /// How many decisions that sum has.
    pub service_decisions: u64,
    /// The last fault or invalid answer.
    pub last_fault: Option<Fault>,
}

impl RivalReport {
    /// Whether nothing went wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.invalid == 0 && self.faults.iter().all(|count| *count == 0)
    }
}

/// A recorded decision that the next frame may still replace, and the rival's answer to the same question.
struct Pending {
    recorded: u64,
    rival: u64,
    is_pick: bool,
}

/// A policy that is asked what others were asked.
pub struct Rival {
    policy: Policy,
    live: Option<Instance>,
    /// The host's tables, while they can be followed.
    mirror: Option<Snapshot>,
    pending: Option<Pending>,
    report: RivalReport,
}

impl Rival {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, live: None, mirror: None, pending: None, report: RivalReport::default() }
    }

    /// What has been found so far.
    #[must_use]
    pub fn report(&self) -> &RivalReport {
        &self.report
    }

    /// Takes in one frame. What happens to arm 0 is the world; decisions of both arms are questions.
    pub fn step(&mut self, frame: &Frame) {
        let leads = frame.arm == 0;
        if let Body::Replaced(answer) = frame.body {
            if let Some(pending) = &mut self.pending {
                pending.recorded = answer;
            }
            return;
        }
        if matches!(frame.body, Body::Refused(_)) {
            return;
        }
        self.settle();
        match &frame.body {
            Body::Start(start) if leads => self.start(start),
            Body::Apply(seq, words, outcome) if leads => {
                self.apply(*seq, words);
                self.follow(leads, outcome.fault);
            }
            Body::Pick(ask, overlap, outcome) => {
                let overlap = overlap.as_deref().unwrap_or_default();
                let affine = self.policy.descriptor().needs_overlap.then_some(overlap);
                let answer = self.ask(|live| live.pick(ask, affine));
                if let Some(answer) = answer {
                    self.check_pick(answer, ask.reserve);
                    self.pending = Some(Pending { recorded: outcome.answer, rival: answer, is_pick: true });
                }
                self.follow(leads, outcome.fault);
            }
            Body::Pull(ask, words, outcome) => {
                let answer = self.ask(|live| live.pull(ask, words).map(u64::from));
                if let Some(answer) = answer {
                    self.check_pull(answer, ask.chain, words);
                    self.pending = Some(Pending { recorded: outcome.answer, rival: answer, is_pick: false });
                }
                self.follow(leads, outcome.fault);
            }
            Body::Ask(asked) => {
                if let Some(answer) = self.ask(|live| window(live, asked)) {
                    self.check_window(asked, &answer);
                    let (recorded, rival) = (asked.outcome.answer, fingerprint(&answer));
                    self.pending = Some(Pending { recorded, rival, is_pick: false });
                }
                self.follow(leads, asked.outcome.fault);
            }
            Body::Lost(_) => self.mirror = None,
            Body::Start(_) | Body::Apply(..) | Body::Refused(_) | Body::Replaced(_) => {}
        }
    }

    /// Counts the last decision, which nothing can replace any more.
    pub fn settle(&mut self) {
        let Some(Pending { recorded, rival, is_pick }) = self.pending.take() else { return };
        if recorded == rival {
            self.report.agreed += 1;
            return;
        }
        let service = |word: u64| match RouteDecision::decode(word) {
            Ok(RouteDecision::Dispatch(chain)) => {
                self.mirror.as_ref()?.chains.get(chain.0 as usize).map(|chain| i128::from(chain.service.0))
            }
            _ => None,
        };
        if let (true, Some(recorded), Some(rival)) = (is_pick, service(recorded), service(rival)) {
            self.report.service_micros += rival - recorded;
            self.report.service_decisions += 1;
        }
    }

    /// After a fault of the recorded policy its changes are not in the log until it starts again.
    fn follow(&mut self, leads: bool, fault: Option<FaultClass>) {
        if leads && fault.is_some() {
            self.settle();
            self.mirror = None;
        }
    }

    fn start(&mut self, start: &Start) {
        self.mirror = Some(start.snapshot.clone());
        let saved = self.live.as_mut().and_then(|live| live.save().ok().flatten());
        self.live = None;
        match self.policy.start(&start.snapshot, saved) {
            Ok(instance) => self.live = Some(instance),
            Err(fault) => self.fault(fault),
        }
    }

    fn apply(&mut self, seq: u64, words: &[u64]) {
        if let Some(mirror) = self.mirror.as_mut().filter(|_| self.policy.slot() == SlotKind::Route) {
            mirror.fold(seq, events(words));
        }
        if let Some(live) = &mut self.live
            && let Err(fault) = live.apply(seq, words)
        {
            self.fault(fault);
        }
    }

    fn ask<A>(&mut self, ask: impl FnOnce(&mut Instance) -> Result<A, Fault>) -> Option<A> {
        let Some(live) = self.live.as_mut().filter(|_| self.mirror.is_some()) else {
            self.report.missed += 1;
            return None;
        };
        self.report.decisions += 1;
        let answer = ask(live);
        let fuel = live.fuel_used();
        self.report.fuel_total += fuel;
        self.report.fuel_max = self.report.fuel_max.max(fuel);
        answer.map_err(|fault| self.fault(fault)).ok()
    }

    fn check_pick(&mut self, answer: u64, reserve: u32) {
        match RouteDecision::decode(answer) {
            Err(fault) => self.fault(fault),
            Ok(RouteDecision::Dispatch(chain)) if !self.takes(chain, reserve) => {
                self.invalid(format!("chain {} can not take {reserve} tokens", chain.0));
            }
            Ok(_) => {}
        }
    }

    fn check_pull(&mut self, answer: u64, chain: ChainId, words: &[u64]) {
        let window = waiting(words);
        match pulled(answer as u32, window.len()) {
            Err(fault) => self.fault(fault),
            Ok(Some(index)) if !self.takes(chain, window[index as usize].reserve) => {
                self.invalid(format!("request {index} of the window does not fit chain {}", chain.0));
            }
            Ok(_) => {}
        }
    }

    fn check_window(&mut self, asked: &Asked, answer: &[u64]) {
        if let Err(fault) = asked.kind.check(&asked.ask, asked.window.len() / asked.kind.words(), answer) {
            self.invalid(fault.detail);
        }
    }

    fn takes(&self, chain: ChainId, reserve: u32) -> bool {
        let chain = self.mirror.as_ref().and_then(|mirror| mirror.chains.get(chain.0 as usize));
        chain.is_some_and(|chain| chain.takes(reserve))
    }

    fn invalid(&mut self, detail: String) {
        self.report.invalid += 1;
        self.report.last_fault = Some(Fault::new(FaultClass::Invalid, detail));
    }

    /// The instance is gone; the next start makes another.
    fn fault(&mut self, fault: Fault) {
        self.report.faults[fault.class.index()] += 1;
        self.live = None;
        self.report.last_fault = Some(fault);
    }
}
