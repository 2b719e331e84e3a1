//! The Rust SDK for policies: implement [`Policy`] and the trait of a slot, export them, build one `.wasm` file.
//!
//! The host owns every queue, reservation and device. A policy owns only its opinion: it is shown the cluster as a
//! [`Cluster`], which this crate keeps up to date from the host's events, and answers [`Decision`]s. It has no clock, no
//! randomness and no I/O; time and random bits are fields of the question, so that every decision can be replayed.
//!
//! ```
//! use pointsman_sdk::{Cluster, Decision, InitError, Policy, Request, RoutePolicy, no_knobs};
//!
//! /// Sends each request to the first chain, by id, that can take it.
//! pub struct FirstFit;
//!
//! impl Policy for FirstFit {
//!     const NAME: &str = "first-fit";
//!     const VERSION: &str = "0.1.0";
//!
//!     fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
//!         no_knobs(config).map(|()| Self)
//!     }
//! }
//!
//! impl RoutePolicy for FirstFit {
//!     fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
//!         match cluster.chains().iter().find(|chain| chain.fits(ask.reserve)) {
//!             Some(chain) => Decision::Dispatch(chain.id()),
//!             None => Decision::Queue,
//!         }
//!     }
//! }
//!
//! pointsman_sdk::export_policy!(FirstFit: route);
//! ```
//!
//! The slots, each with its trait: `route`, where a request goes ([`RoutePolicy`]); `batch`, what runs in the next micro-batch
//! ([`BatchPolicy`]); `cache`, which cached prefixes are given up ([`CachePolicy`]); `place`, which server holds which blocks
//! ([`PlacePolicy`]). What placement policies compute with is in [`chains`].
//!
//! Life of a policy: [`Policy::init`] once per instance, then for every decision the events since the last one and the question
//! itself. Calls never overlap. A panic is logged and ends the instance; the host then decides with its builtin and builds
//! a fresh one.
#![deny(unsafe_code)]

mod batch;
mod cache;
mod cluster;
mod event;
mod knobs;
mod log;
mod place;
mod policy;
mod route;

pub mod chains;
pub mod testing;

#[doc(hidden)]
pub mod driver;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;

pub use crate::batch::{BatchPolicy, Plan, Ready, Served, Step};
pub use crate::cache::{CachePolicy, Evict, Format, Idle, NewSequence};
pub use crate::cluster::{Chain, ChainId, Cluster, Micros};
pub use crate::event::Event;
pub use crate::knobs::{Knobs, knobs};
pub use crate::log::{Level, count, gauge, log};
pub use crate::place::{
    Fleet, Health, Hop, Link, Model, Outcome, Path, PlacePolicy, Placement, Range, Server, ServerId, Workload,
};
pub use crate::policy::{InitError, Inputs, Metric, MetricKind, Policy, Saved, no_knobs};
pub use crate::route::{Candidate, Decision, Overlap, Pull, Request, RoutePolicy, Waiting};

/// Makes a type that implements [`Policy`] the policy of this crate's component, in the slots that are named behind the colon.
///
/// Emits the component's exports on `wasm32` only; elsewhere it merely checks the type, so that the crate builds, links
/// and tests like any other.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty: $($slot:ident),+ $(,)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Export;
            impl $crate::guest::Export for Export {
                type Policy = $policy;
                fn place() -> &'static ::std::thread::LocalKey<$crate::guest::Place<$policy>> {
                    ::std::thread_local! {
                        static PLACE: $crate::guest::Place<$policy> = const { $crate::guest::empty() };
                    }
                    &PLACE
                }
            }
            use $crate::bindings::full_policy::exports::pointsman::policy as exports;
            exports::lifecycle::__export_pointsman_policy_lifecycle_0_1_0_cabi!(Export with_types_in exports::lifecycle);
            $($crate::__export_slot!($slot exports);)+
        };
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            $($crate::__export_slot!($slot $policy);)+
        };
    };
}

/// The exports of one slot.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_slot {
    (route $exports:ident) => {
        $exports::route::__export_pointsman_policy_route_0_1_0_cabi!(Export with_types_in exports::route);
    };
    (batch $exports:ident) => {
        $exports::batch::__export_pointsman_policy_batch_0_1_0_cabi!(Export with_types_in exports::batch);
    };
    (cache $exports:ident) => {
        $exports::cache::__export_pointsman_policy_cache_0_1_0_cabi!(Export with_types_in exports::cache);
    };
    (place $exports:ident) => {
        $exports::place::__export_pointsman_policy_place_0_1_0_cabi!(Export with_types_in exports::place);
    };
}

/// Checks that a type serves a slot.
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_slot {
    (route $policy:ty) => {
        const _: fn() = || {
            fn serves<P: $crate::RoutePolicy>() {}
            serves::<$policy>();
        };
    };
    (batch $policy:ty) => {
        const _: fn() = || {
            fn serves<P: $crate::BatchPolicy>() {}
            serves::<$policy>();
        };
    };
    (cache $policy:ty) => {
        const _: fn() = || {
            fn serves<P: $crate::CachePolicy>() {}
            serves::<$policy>();
        };
    };
    (place $policy:ty) => {
        const _: fn() = || {
            fn serves<P: $crate::PlacePolicy>() {}
            serves::<$policy>();
        };
    };
}
