//! What the slot does of its own accord: a policy that misbehaves is taken out, and what was there before decides again.
//!
//! Runs on the engine's thread between two questions. To take a policy out touches no guest code; a promotion asks the policy for its
//! state, as a swap does. What was done is left as a [`Notice`] for the
//! operator's log.

use pointsman_engine::ids::RequestId;

use super::{Challenger, PolicySlot, Retired};
use crate::artifact::Digest;
use crate::host::Policy;
use crate::kind::SlotKind;
use crate::slo::{Sample, Slo, Verdict};

/// What a refusal counts for in a trial.
const REJECTED_MICROS: u64 = 60_000_000;

/// When a policy is taken out without being asked to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// After too many faults, or when it lets requests starve. Without this the builtin decides in its place each time, for ever.
    pub faults: bool,
    /// For a challenger: when it is slower than the one in charge.
    pub slo: Slo,
    /// Puts a challenger in charge of everything when it has passed.
    pub promote: bool,
    /// For one that comes in without a trial: when requests are slower than before by more than this fraction.
    pub watch: Option<f64>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { faults: true, slo: Slo::default(), promote: false, watch: None }
    }
}

/// Something that the slot did by itself.
#[must_use]
pub struct Notice {
    /// In which slot.
    pub slot: SlotKind,
    /// Whom it is about.
    pub digest: Digest,
    /// Its name.
    pub name: String,
    /// Whether it was promoted; otherwise it left.
    pub promoted: bool,
    /// Who decided before it was promoted, or decides after it was removed; none for the builtin.
    pub other: Option<Digest>,
    /// Why.
    pub reason: String,
    /// Its removals so far.
    pub strikes: u32,
    /// What left the slot.
    pub retired: Retired,
}

impl PolicySlot {
    /// A request has ended: how fast it was. `is_settled` if it came after every change of a slot. Ends the trial of a challenger, or
    /// the stay of one that came in lately, if that settles it.
    pub fn observe(&mut self, request: RequestId, is_settled: bool, sample: Sample) {
        let is_challengers = self.is_challengers(request);
        let is_replaced = self.replaced.remove(&request.0);
        let is_settled = is_settled && !is_challengers;
        if is_settled {
            self.recent.note(sample);
        }
        let Some(challenger) = &mut self.challenger else {
            match self.watch.as_mut().filter(|_| is_settled).map_or(Verdict::Open, |watch| watch.note(sample)) {
                Verdict::Open => {}
                Verdict::Passed => self.watch = None,
                // No strike: that more requests came is not its fault.
                Verdict::Slower(why) => self.remove(false, &format!("{why} than before it came"), false),
            }
            return;
        };
        if is_replaced || request.0 < challenger.since {
            return;
        }
        let promotes = challenger.arm.guard.promote;
        match challenger.trial.note(is_challengers, sample) {
            Verdict::Open => {}
            Verdict::Slower(why) => self.remove(true, &why, true),
            Verdict::Passed if promotes => {
                let Some(policy) = challenger.arm.who() else { return };
                let (digest, name) = (policy.digest(), policy.descriptor().name.to_string());
                let (seen, ..) = challenger.trial.so_far();
                let other = self.incumbent.who().map(Policy::digest);
                let Ok(retired) = self.promote() else { return };
                let reason = format!("it was no slower over {seen} requests");
                self.notices.push(Notice {
                    slot: self.kind,
                    digest,
                    name,
                    promoted: true,
                    other,
                    reason,
                    strikes: 0,
                    retired,
                });
            }
            Verdict::Passed => {}
        }
    }

    /// A policy refused a request: to its client that is as bad as a long wait, so that nobody looks fast by refusing what is slow.
    pub(super) fn observe_rejection(&mut self, request: RequestId) {
        self.observe(request, false, Sample { ttft_micros: REJECTED_MICROS, tpot_micros: None });
    }

    /// A challenger leaves because the policy that it was compared with has left.
    pub(super) fn dismiss(&mut self, challenger: Challenger) {
        let (policy, mut retired) = challenger.arm.retire();
        let Some(policy) = policy else { return };
        let (digest, name) = (policy.digest(), policy.descriptor().name.to_string());
        retired.policy = Some(policy);
        let reason = "the policy that it was compared with has left".to_owned();
        self.notices.push(Notice {
            slot: self.kind,
            digest,
            name,
            promoted: false,
            other: None,
            reason,
            strikes: 0,
            retired,
        });
    }

    /// What the slot has done by itself since this was asked last.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Takes out the policy that answered last, unless it is to be suffered.
    pub(super) fn misbehaved(&mut self, challenger: bool, why: &str) {
        if self.arm(challenger).guard.faults {
            self.remove(challenger, why, true);
        }
    }

    fn remove(&mut self, challenger: bool, why: &str, is_strike: bool) {
        let Some(policy) = self.arm(challenger).who() else { return };
        let (digest, name) = (policy.digest(), policy.descriptor().name.to_string());
        let retired = if challenger {
            self.generation += 1;
            self.challenger.take().map_or_else(Retired::default, |challenger| challenger.arm.retire().1)
        } else {
            let before = self.previous.take().flatten();
            let retired = self.replace(self.arm_of(before));
            // A rollback must not bring back what has just been thrown out.
            self.previous = None;
            retired
        };
        let strikes = if is_strike { self.quarantine.strike(digest, why) } else { 0 };
        let (other, reason) = (self.incumbent.who().map(Policy::digest), why.to_owned());
        self.notices.push(Notice { slot: self.kind, digest, name, promoted: false, other, reason, strikes, retired });
    }
}
