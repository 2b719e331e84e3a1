//! Chain composition: which server holds which blocks, which paths lead through them, and how many jobs each takes.
//!
//! Pure functions for placement policies, after "server chain composition" (arXiv 2604.14993). Called by a policy's
//! `propose` with the servers that are ready; the SDK itself calls nothing of this. The steps of a whole plan:
//!
//! 1. [`by_bound`] or [`by_surrogate`] choose for how many jobs every server reserves: the paper's c.
//! 2. [`gbp_cr`] cuts the servers into chains, and so gives each its range of blocks: GBP-CR, Algorithm 1.
//! 3. [`gca`] finds the paths through these ranges, the fastest first, and what each can take: GCA, Algorithm 2.
//! 4. [`bounds`] says between what the mean time in the system lies when jobs go to the fastest free path: Theorem 4.
//! 5. [`plan`] makes the answer of it, [`predict`] fills in the time, and [`is_present`] says whether the fleet
//!    stands like this already.
//!
//! Bytes, blocks, slots and nanoseconds are whole numbers and never rounded, in 128 bits where 64 could overflow. Rates
//! and bounds are `f64`, made with the four basic operations only: they come out alike natively and in WebAssembly.
//! Equal servers are taken in the order of their ids.
//!
//! Two things the paper does not have. A server that holds the first or the last block also holds what belongs to
//! that end of the model, so it has less room there; without head and tail all results are the paper's. And the
//! host's limits: [`PATHS_MAX`], [`HOPS_MAX`], [`CAPACITY_MAX`].
//!
//! Invariants of every plan, each checked by the host again: a range fits its server with its slots; the hops of a
//! path follow each other from the first block to the last, each to the end of its server's range; what the paths
//! reserve of a range is the range's slots.

mod bounds;
mod gbp;
mod gca;
mod plan;
mod reserve;

#[cfg(test)]
mod tests;

pub use self::bounds::{Bounds, Pool, bounds, total_rate};
pub use self::gbp::{Composition, Placed, Until, gbp_cr, room};
pub use self::gca::{fits, gca, slots};
pub use self::plan::{is_present, mean_service_ns, plan, predict};
pub use self::reserve::{Choice, Demand, Variant, by_bound, by_surrogate, compose, jobs_max};

/// Paths of a plan that the host allows.
pub const PATHS_MAX: usize = 512;
/// Hops of a path that the host allows.
pub const HOPS_MAX: usize = 64;
/// Jobs of a path that the host allows, and the most that are reserved for.
pub const CAPACITY_MAX: u32 = 256;
/// Steps that a policy may well spend on one question: natively half a second. The fleets of the paper take far fewer.
pub const STEPS: u64 = 100_000_000;
