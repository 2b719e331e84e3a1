//! Joins the generated bindings to [`Driver`]: the exports of a component, for any policy.
//!
//! `export_route!` names a policy and gives it a place to live; everything else is here, once. A component is entered by
//! one call at a time, so the cell is never borrowed twice.

use std::cell::RefCell;
use std::panic;
use std::thread::LocalKey;

use crate::bindings::routing_policy::exports::pointsman::policy::{lifecycle, route};
use crate::bindings::routing_policy::pointsman::policy::host;
use crate::cluster::{Chain, ChainId, Cluster};
use crate::driver::Driver;
use crate::log::Level;
use crate::policy::{InitError, Metric, MetricKind, RoutePolicy, Saved};
use crate::route::{Pull, Request};

/// Where a component keeps its policy; empty until `init`.
pub type Slot<P> = RefCell<Option<Driver<P>>>;

/// An empty slot.
#[must_use]
pub const fn empty<P>() -> Slot<P> {
    RefCell::new(None)
}

/// A policy with a place to live. Implemented by `export_route!`.
pub trait Export {
    /// The policy.
    type Policy: RoutePolicy + 'static;
    /// Its place.
    fn slot() -> &'static LocalKey<Slot<Self::Policy>>;
}

impl<E: Export> lifecycle::Guest for E {
    fn describe() -> lifecycle::Descriptor {
        lifecycle::Descriptor {
            name: E::Policy::NAME.to_owned(),
            version: E::Policy::VERSION.to_owned(),
            state_schema: E::Policy::STATE_SCHEMA.to_owned(),
            needs: if E::Policy::NEEDS.prefix_overlap {
                lifecycle::Inputs::PREFIX_OVERLAP
            } else {
                lifecycle::Inputs::empty()
            },
            metrics: E::Policy::METRICS.iter().map(metric).collect(),
        }
    }

    fn init(
        config: String,
        snapshot: lifecycle::Cluster,
        previous: Option<lifecycle::Saved>,
    ) -> Result<(), lifecycle::Failure> {
        // Without this a panic reaches the host as a bare trap.
        panic::set_hook(Box::new(|info| crate::log(Level::Error, &info.to_string())));
        let previous = previous.map(|saved| Saved { schema: saved.schema, seq: saved.seq, bytes: saved.bytes });
        let driver = Driver::new(&config, view(&snapshot), previous.as_ref()).map_err(failure)?;
        E::slot().set(Some(driver));
        Ok(())
    }

    fn save() -> Option<lifecycle::Saved> {
        let saved = with_driver::<E, _>(|driver| driver.save())?;
        Some(lifecycle::Saved { schema: saved.schema, seq: saved.seq, bytes: saved.bytes })
    }

    fn dump() -> String {
        with_driver::<E, _>(|driver| driver.dump())
    }
}

impl<E: Export> route::Guest for E {
    fn apply(seq: u64, words: Vec<u64>) {
        with_driver::<E, _>(|driver| driver.apply(seq, &words));
    }

    fn pick(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
    ) -> u64 {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        with_driver::<E, _>(|driver| driver.pick(&ask))
    }

    fn pick_affine(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
        overlap: Vec<u64>,
    ) -> u64 {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        with_driver::<E, _>(|driver| driver.pick_affine(&ask, &overlap))
    }

    fn trace(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
        overlap: Vec<u64>,
    ) -> Vec<route::Candidate> {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        let scores = with_driver::<E, _>(|driver| driver.trace(&ask, &overlap));
        scores.into_iter().map(|it| route::Candidate { chain: it.chain.0, score: it.score }).collect()
    }

    fn pull(_seq: u64, now: u64, rnd: u64, chain: u32, words: Vec<u64>) -> u32 {
        let ask = Pull { now, rnd, chain: ChainId(chain) };
        with_driver::<E, _>(|driver| driver.pull(&ask, &words))
    }
}

#[expect(clippy::expect_used, reason = "the contract: nothing but describe is called before a successful init")]
fn with_driver<E: Export, R>(act: impl FnOnce(&mut Driver<E::Policy>) -> R) -> R {
    E::slot().with_borrow_mut(|slot| act(slot.as_mut().expect("a policy is called after its init only")))
}

fn view(snapshot: &lifecycle::Cluster) -> Cluster {
    let chains = snapshot.chains.iter().map(|chain| {
        Chain::new(ChainId(chain.id), chain.capacity, chain.free_tokens).with_state(
            chain.busy,
            chain.open,
            chain.service,
        )
    });
    Cluster::new(snapshot.epoch, snapshot.seq, chains.collect(), snapshot.queued)
}

fn metric(metric: &Metric) -> lifecycle::Metric {
    lifecycle::Metric {
        id: metric.id,
        kind: match metric.kind {
            MetricKind::Counter => lifecycle::MetricKind::Counter,
            MetricKind::Gauge => lifecycle::MetricKind::Gauge,
        },
        name: metric.name.to_owned(),
        help: metric.help.to_owned(),
    }
}

fn failure(error: InitError) -> lifecycle::Failure {
    match error {
        InitError::BadConfig(why) => lifecycle::Failure::BadConfig(why),
        InitError::Unsupported(why) => lifecycle::Failure::Unsupported(why),
        InitError::Internal(why) => lifecycle::Failure::Internal(why),
    }
}

/// The component's side of [`crate::log`].
pub(crate) fn log(level: Level, line: &str) {
    let level = match level {
        Level::Debug => host::Level::Debug,
        Level::Info => host::Level::Info,
        Level::Warn => host::Level::Warn,
        Level::Error => host::Level::Error,
    };
    host::log(level, line);
}

/// The component's side of [`crate::count`].
pub(crate) fn count(id: u32, by: u64) {
    host::count(id, by);
}

/// The component's side of [`crate::gauge`].
pub(crate) fn gauge(id: u32, value: f64) {
    host::gauge(id, value);
}
