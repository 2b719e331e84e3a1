//! Hostile guests for the `place` slot: honest about the first fleet that they are asked about, which is that of their trial.

use std::marker::PhantomData;

use pointsman_sdk::{Cluster, Fleet, InitError, Model, Outcome, PlacePolicy, Policy, Workload};

/// A guest that misbehaves from its second question on.
pub trait Hostile {
    /// The name of the guest, which is that of its file.
    const NAME: &'static str;

    /// What it makes of a question.
    fn propose(model: &Model, fleet: &Fleet) -> Outcome;
}

/// A hostile guest as a policy.
pub struct Guest<H> {
    asked: bool,
    hostile: PhantomData<H>,
}

impl<H: Hostile> Policy for Guest<H> {
    const NAME: &'static str = H::NAME;
    const VERSION: &'static str = "0.1.0";

    fn init(_config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        Ok(Self { asked: false, hostile: PhantomData })
    }
}

impl<H: Hostile> PlacePolicy for Guest<H> {
    fn propose(&mut self, model: &Model, _workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        if std::mem::replace(&mut self.asked, true) { Ok(H::propose(model, fleet)) } else { Ok(Outcome::Keep) }
    }
}
