//! The Rust SDK for policies: implement [`RoutePolicy`], export it, build one `.wasm` file.
//!
//! The host owns every queue, reservation and device. A policy owns only its opinion: it is shown the cluster as a
//! [`Cluster`], which this crate keeps up to date from the host's events, and answers [`Decision`]s. It has no clock, no
//! randomness and no I/O; time and random bits are fields of the question, so that every decision can be replayed.
//!
//! ```
//! use pointsman_sdk::{Cluster, Decision, InitError, Request, RoutePolicy, no_knobs};
//!
//! /// Sends each request to the first chain, by id, that can take it.
//! pub struct FirstFit;
//!
//! impl RoutePolicy for FirstFit {
//!     const NAME: &str = "first-fit";
//!     const VERSION: &str = "0.1.0";
//!
//!     fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
//!         no_knobs(config).map(|()| Self)
//!     }
//!
//!     fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
//!         match cluster.chains().iter().find(|chain| chain.fits(ask.reserve)) {
//!             Some(chain) => Decision::Dispatch(chain.id()),
//!             None => Decision::Queue,
//!         }
//!     }
//! }
//!
//! pointsman_sdk::export_route!(FirstFit);
//! ```
//!
//! Life of a policy: [`RoutePolicy::init`] once per instance, then for every decision the events since the last one
//! ([`RoutePolicy::on_event`]) and the question itself ([`RoutePolicy::pick`] or [`RoutePolicy::pull`]). Calls never
//! overlap. A panic is logged and ends the instance; the host then decides with its builtin and builds a fresh one.
#![deny(unsafe_code)]

mod cluster;
mod event;
mod knobs;
mod log;
mod policy;
mod route;

pub mod testing;

#[doc(hidden)]
pub mod driver;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;

pub use crate::cluster::{Chain, ChainId, Cluster, Micros};
pub use crate::event::Event;
pub use crate::knobs::{Knobs, knobs};
pub use crate::log::{Level, count, gauge, log};
pub use crate::policy::{InitError, Inputs, Metric, MetricKind, RoutePolicy, Saved, no_knobs};
pub use crate::route::{Candidate, Decision, Overlap, Pull, Request, Waiting};

/// Makes a type that implements [`RoutePolicy`] the policy of this crate's component.
///
/// Emits the component's exports on `wasm32` only; elsewhere it merely checks the type, so that the crate builds, links
/// and tests like any other.
#[macro_export]
macro_rules! export_route {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Export;
            impl $crate::guest::Export for Export {
                type Policy = $policy;
                fn slot() -> &'static ::std::thread::LocalKey<$crate::guest::Slot<$policy>> {
                    ::std::thread_local! {
                        static SLOT: $crate::guest::Slot<$policy> = const { $crate::guest::empty() };
                    }
                    &SLOT
                }
            }
            use $crate::bindings::routing_policy as bindings;
    $crate::bindings::routing_policy::export!(Export with_types_in bindings);
        };
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const fn is_policy<P: $crate::RoutePolicy>() {}
            is_policy::<$policy>()
        };
    };
}
