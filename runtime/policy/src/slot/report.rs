//! The slot's state for people and metrics, copied out.

use pointsman_engine::decision::{Fault, FaultClass};

use super::PolicySlot;
use super::watch::Watch;
use crate::artifact::Digest;
use crate::figures::Figure;
use crate::host::{Descriptor, Policy};
use crate::kind::SlotKind;

/// A policy in the slot, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCard {
    /// What it says of itself.
    pub descriptor: Descriptor,
    /// The digest of its upload.
    pub digest: Digest,
}

/// A trial that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Challenge {
    /// Who is on trial.
    pub policy: PolicyCard,
    /// Its share of the requests, in hundredths of a per cent.
    pub share: u32,
    /// Its faults, in the order of [`FaultClass::ALL`].
    pub faults: [u64; FaultClass::ALL.len()],
    /// Requests that it decided and that have ended.
    pub requests: u32,
    /// Its time to first token, as a multiple of the one in charge.
    pub ttft_ratio: f64,
    /// Its time per output token, as a multiple of the one in charge.
    pub tpot_ratio: f64,
}

/// The slot's state, copied out.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotReport {
    /// Which slot.
    pub kind: SlotKind,
    /// Grows with every swap, trial, promotion, rollback and ejection; 0 at the start.
    pub generation: u64,
    /// Who decides; none means the builtin.
    pub active: Option<PolicyCard>,
    /// Who is on trial beside it.
    pub challenger: Option<Challenge>,
    /// How it compares with the one before it, while that is watched: requests, and ratios of TTFT and TPOT.
    pub watch: Option<(u32, f64, f64)>,
    /// Whether there is something to roll back to.
    pub can_roll_back: bool,
    /// Who a rollback would bring back; none means the builtin, if [`Self::can_roll_back`].
    pub previous: Option<PolicyCard>,
    /// Faults of the active policy since it came in, in the order of [`FaultClass::ALL`].
    pub faults: [u64; FaultClass::ALL.len()],
    /// The last fault of any policy in this slot.
    pub last_fault: Option<Fault>,
    /// The figures that the active policy keeps.
    pub figures: Vec<Figure>,
}

impl SlotReport {
    /// Whether the slot may have changed since; a few comparisons.
    #[must_use]
    pub fn is_outdated(&self, slot: &PolicySlot) -> bool {
        let keeps_figures = slot.incumbent.who().is_some_and(|policy| policy.keeps_figures());
        self.generation != slot.generation
            || self.faults != slot.incumbent.faults
            || slot.challenger.is_some()
            || self.challenger.is_some()
            || slot.watch.is_some()
            || self.watch.is_some()
            || self.last_fault != slot.last_fault
            || keeps_figures
    }
}

impl PolicySlot {
    /// Copies the state out; about a microsecond.
    #[must_use]
    pub fn report(&self) -> SlotReport {
        let challenger = self.challenger.as_ref().and_then(|challenger| {
            let (requests, ttft_ratio, tpot_ratio) = challenger.trial.so_far();
            let policy = card(challenger.arm.who()?);
            Some(Challenge {
                policy,
                share: challenger.share,
                faults: challenger.arm.faults,
                requests,
                ttft_ratio,
                tpot_ratio,
            })
        });
        let active = self.incumbent.who();
        SlotReport {
            kind: self.kind,
            generation: self.generation,
            active: active.map(card),
            challenger,
            watch: self.watch.as_ref().map(Watch::so_far),
            can_roll_back: self.challenger.is_some() || self.previous.is_some(),
            previous: self.previous.iter().flatten().next().map(card),
            faults: self.incumbent.faults,
            last_fault: self.last_fault.clone(),
            figures: active.map_or_else(Vec::new, |policy| policy.figures.read()),
        }
    }
}

fn card(policy: &Policy) -> PolicyCard {
    PolicyCard { descriptor: policy.descriptor().clone(), digest: policy.digest() }
}
