//! Asks placement policies. Their plans are checked by exact arithmetic and not carried out here.
//!
//! Off the engine's thread: a proposal may take seconds. Called by the exam and by `pointsman policy`; the chains over several
//! hosts will be built from such plans.

use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::placement::synth::Scene;
use pointsman_engine::placement::{Plan, check};
use pointsman_engine::snapshot::Snapshot;

use crate::host::{Candidate, Policy};
use crate::instance::Instance;
use crate::journal::escape;
use crate::versions::v0_1::Saved;

/// A checked answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// The present plan stays.
    Keep,
    /// This plan takes its place; it can be carried out.
    Replace(Plan),
    /// The model does not fit the fleet, in the policy's words.
    Infeasible(String),
}

/// A placement policy at work.
pub struct Planner {
    instance: Instance,
}

impl Planner {
    /// Starts the policy.
    ///
    /// # Errors
    /// The policy's fault.
    pub fn new(candidate: Candidate) -> Result<Self, Fault> {
        Self::start(&candidate.policy, None)
    }

    pub(crate) fn start(policy: &Policy, previous: Option<Saved>) -> Result<Self, Fault> {
        Ok(Self { instance: policy.start(&no_chains(), previous)? })
    }

    /// Asks for a plan, and checks it.
    ///
    /// # Errors
    /// The policy's fault, after which it must not be asked again; or the rule that its plan breaks.
    pub fn propose(&mut self, scene: &Scene) -> Result<Proposal, Fault> {
        proposal(&mut self.instance, scene)
    }

    /// Fuel that the last call took.
    #[must_use]
    pub fn fuel_used(&self) -> u64 {
        self.instance.fuel_used()
    }

    pub(crate) fn save(&mut self) -> Result<Option<Saved>, Fault> {
        self.instance.save()
    }
}

/// Asks an instance that has been started.
pub(crate) fn proposal(instance: &mut Instance, scene: &Scene) -> Result<Proposal, Fault> {
    let Scene { model, workload, fleet } = scene;
    Ok(match instance.propose(model, workload, fleet)? {
        Proposal::Keep => Proposal::Keep,
        Proposal::Replace(plan) => {
            let sound = check(model, fleet, &plan);
            sound.map_err(|why| Fault::new(FaultClass::Invalid, format!("propose: {why}")))?;
            Proposal::Replace(Plan { note: escape(&plan.note), ..plan })
        }
        Proposal::Infeasible(why) => Proposal::Infeasible(escape(&why)),
    })
}

/// What `init` is given: everything else is in the question.
pub(crate) fn no_chains() -> Snapshot {
    Snapshot { epoch: 0, seq: 0, chains: Vec::new(), queued: 0 }
}
