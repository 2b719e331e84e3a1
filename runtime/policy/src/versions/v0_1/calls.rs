//! The calls of each slot, flat: scalars, and lists of words that are copied as memory.

use pointsman_engine::placement::{Fleet, Model, Workload};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::window::Ask;
use wasmtime::component::{Instance, TypedFunc};
use wasmtime::error::Context as _;
use wasmtime::{Result, Store};

use super::place::{Outcome, ProposeParams, Proposed};
use super::records::Score;
use super::{BATCH, CACHE, PLACE, ROUTE, export};
use crate::instance::State;
use crate::kind::SlotKind;
use crate::place::Proposal;

type ApplyParams<'a> = (u64, &'a [u64]);
type PickParams = (u64, u64, u64, u32, u32, u32, u32, u64, u64, u32);
type AffineParams<'a> = (u64, u64, u64, u32, u32, u32, u32, u64, u64, u32, &'a [u64]);
type PullParams<'a> = (u64, u64, u64, u32, &'a [u64]);
type WindowParams<'a> = (u64, u64, u64, u32, u32, u32, &'a [u64]);
type FormatParams<'a> = (u32, u32, u32, u32, u32, &'a [u64]);

/// Handles to the functions of one slot.
pub(crate) enum Calls {
    Route(Route),
    Batch(Batch),
    Cache(Cache),
    Place(Place),
}

pub(crate) struct Route {
    apply: TypedFunc<ApplyParams<'static>, ()>,
    pick: TypedFunc<PickParams, (u64,)>,
    pick_affine: TypedFunc<AffineParams<'static>, (u64,)>,
    pull: TypedFunc<PullParams<'static>, (u32,)>,
    trace: TypedFunc<AffineParams<'static>, (Vec<Score>,)>,
}

pub(crate) struct Batch {
    apply: TypedFunc<ApplyParams<'static>, ()>,
    step: TypedFunc<WindowParams<'static>, (Vec<u64>,)>,
}

pub(crate) struct Cache {
    victims: TypedFunc<WindowParams<'static>, (Vec<u32>,)>,
    format: TypedFunc<FormatParams<'static>, (u32,)>,
}

pub(crate) struct Place {
    propose: TypedFunc<ProposeParams, Proposed>,
}

impl Calls {
    pub(super) fn find(store: &mut Store<State>, instance: &Instance, slot: SlotKind) -> Result<Self> {
        Ok(match slot {
            SlotKind::Route => Self::Route(Route {
                apply: export(store, instance, ROUTE, "apply")?,
                pick: export(store, instance, ROUTE, "pick")?,
                pick_affine: export(store, instance, ROUTE, "pick-affine")?,
                pull: export(store, instance, ROUTE, "pull")?,
                trace: export(store, instance, ROUTE, "trace")?,
            }),
            SlotKind::Batch => Self::Batch(Batch {
                apply: export(store, instance, BATCH, "apply")?,
                step: export(store, instance, BATCH, "step")?,
            }),
            SlotKind::Cache => Self::Cache(Cache {
                victims: export(store, instance, CACHE, "victims")?,
                format: export(store, instance, CACHE, "format")?,
            }),
            SlotKind::Place => Self::Place(Place { propose: export(store, instance, PLACE, "propose")? }),
        })
    }

    /// Instances are only asked the questions of their slot.
    fn route(&self) -> Result<&Route> {
        if let Self::Route(route) = self { Some(route) } else { None }.context("this instance serves another slot")
    }

    /// Two words for each event. There are none in slots without `apply`.
    pub(crate) fn apply(&self, store: &mut Store<State>, seq: u64, words: &[u64]) -> Result<()> {
        match self {
            Self::Route(Route { apply, .. }) | Self::Batch(Batch { apply, .. }) => apply.call(store, (seq, words)),
            Self::Cache(_) | Self::Place(_) => Ok(()),
        }
    }

    pub(crate) fn pick(&self, store: &mut Store<State>, ask: &Pick) -> Result<u64> {
        let Pick { seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints, .. } = *ask;
        let flat = (seq, now.0, rnd, tenant, class, prompt, reserve, deadline.0, session, hints);
        self.route()?.pick.call(store, flat).map(|(word,)| word)
    }

    /// One word for each chain that holds the beginning of the prompt.
    pub(crate) fn pick_affine(&self, store: &mut Store<State>, ask: &Pick, overlap: &[u64]) -> Result<u64> {
        self.route()?.pick_affine.call(store, affine(ask, overlap)).map(|(word,)| word)
    }

    pub(crate) fn trace(&self, store: &mut Store<State>, ask: &Pick, overlap: &[u64]) -> Result<Vec<Score>> {
        self.route()?.trace.call(store, affine(ask, overlap)).map(|(scores,)| scores)
    }

    /// Four words for each waiting request.
    pub(crate) fn pull(&self, store: &mut Store<State>, ask: &Pull, words: &[u64]) -> Result<u32> {
        self.route()?.pull.call(store, (ask.seq, ask.now.0, ask.rnd, ask.chain.0, words)).map(|(index,)| index)
    }

    /// The question of a slot that is asked with a window.
    pub(crate) fn window(
        &self,
        store: &mut Store<State>,
        ask: &Ask,
        words: &[u64],
        answer: &mut Vec<u64>,
    ) -> Result<()> {
        let flat = (ask.seq, ask.now.0, ask.rnd, ask.chain.0, ask.want, ask.have, words);
        match self {
            Self::Batch(batch) => answer.extend(batch.step.call(store, flat)?.0),
            Self::Cache(cache) => answer.extend(cache.victims.call(store, flat)?.0.into_iter().map(u64::from)),
            Self::Route(_) | Self::Place(_) => wasmtime::bail!("this instance serves another slot"),
        }
        Ok(())
    }

    /// The plan is not checked. The inner error is the policy's own.
    pub(crate) fn propose(
        &self,
        store: &mut Store<State>,
        model: &Model,
        workload: &Workload,
        fleet: &Fleet,
    ) -> Result<std::result::Result<Proposal, String>> {
        let Self::Place(place) = self else { wasmtime::bail!("this instance serves another slot") };
        let (outcome,) = place.propose.call(store, (model.into(), workload.into(), fleet.into()))?;
        Ok(outcome.map_err(String::from).map(|outcome| match outcome {
            Outcome::Keep => Proposal::Keep,
            Outcome::Replace(plan) => Proposal::Replace(plan.into()),
            Outcome::Infeasible(why) => Proposal::Infeasible(why),
        }))
    }

    /// One word for each format that is offered.
    pub(crate) fn format(
        &self,
        store: &mut Store<State>,
        [tenant, class, prompt, reserve]: [u32; 4],
        pressure_milli: u32,
        offered: &[u64],
    ) -> Result<u32> {
        let Self::Cache(cache) = self else { wasmtime::bail!("this instance serves another slot") };
        cache.format.call(store, (tenant, class, prompt, reserve, pressure_milli, offered)).map(|(index,)| index)
    }
}

fn affine<'a>(ask: &Pick, overlap: &'a [u64]) -> AffineParams<'a> {
    let Pick { seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints, .. } = *ask;
    (seq, now.0, rnd, tenant, class, prompt, reserve, deadline.0, session, hints, overlap)
}
