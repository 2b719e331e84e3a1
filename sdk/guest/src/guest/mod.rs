//! Joins the generated bindings to [`Driver`]: the exports of a component, for any policy.
//!
//! `export_policy!` names a policy and gives it a place to live; everything else is here, once. A component is entered by
//! one call at a time, so the cell is never borrowed twice.

mod batch;
mod cache;
mod place;
mod route;

use std::cell::RefCell;
use std::panic;
use std::thread::LocalKey;

use crate::bindings::full_policy::exports::pointsman::policy::lifecycle;
use crate::bindings::full_policy::pointsman::policy::host;
use crate::cluster::{Chain, ChainId, Cluster};
use crate::driver::Driver;
use crate::log::Level;
use crate::policy::{InitError, Inputs, Metric, MetricKind, Policy, Saved};

/// Where a component keeps its policy; empty until `init`.
pub type Place<P> = RefCell<Option<Driver<P>>>;

/// An empty place.
#[must_use]
pub const fn empty<P>() -> Place<P> {
    RefCell::new(None)
}

/// A policy with a place to live. Implemented by `export_policy!`.
pub trait Export {
    /// The policy.
    type Policy: Policy + 'static;
    /// Its place.
    fn place() -> &'static LocalKey<Place<Self::Policy>>;
}

impl<E: Export> lifecycle::Guest for E {
    fn describe() -> lifecycle::Descriptor {
        lifecycle::Descriptor {
            name: E::Policy::NAME.to_owned(),
            version: E::Policy::VERSION.to_owned(),
            state_schema: E::Policy::STATE_SCHEMA.to_owned(),
            needs: inputs(E::Policy::NEEDS),
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
        E::place().set(Some(driver));
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

#[expect(clippy::expect_used, reason = "the contract: nothing but describe is called before a successful init")]
fn with_driver<E: Export, R>(act: impl FnOnce(&mut Driver<E::Policy>) -> R) -> R {
    E::place().with_borrow_mut(|place| act(place.as_mut().expect("a policy is called after its init only")))
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

fn inputs(needs: Inputs) -> lifecycle::Inputs {
    let Inputs { prefix_overlap, link_matrix } = needs;
    let all = [(prefix_overlap, lifecycle::Inputs::PREFIX_OVERLAP), (link_matrix, lifecycle::Inputs::LINK_MATRIX)];
    all.into_iter().filter(|(asked, _)| *asked).fold(lifecycle::Inputs::empty(), |inputs, (_, input)| inputs | input)
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
