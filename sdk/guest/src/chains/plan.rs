//! From placed ranges and paths to a plan, its predicted time, and whether the fleet stands like it already.
//!
//! Called by policies with what [`super::gca`] found, or with paths of their own.

use super::{Demand, Placed, Pool, bounds};
use crate::place::{Fleet, Health, Path, Placement, Range, Server, ServerId};

/// The plan of these paths. A range reserves what its paths need; a server that no path visits holds nothing. Neither
/// time nor note are filled in.
///
/// Its paths are right if they came from [`super::gca`] with these ranges: no sum of slots is then above what fits.
#[must_use]
pub fn plan(placed: &[Placed], paths: Vec<Path>, reserved_jobs: u32) -> Placement {
    let mut ranges: Vec<Range> = placed
        .iter()
        .map(|it| Range { server: it.server.id, first_block: it.first_block, blocks: it.blocks, slots: 0 })
        .collect();
    ranges.sort_by_key(|range| range.server);
    for path in &paths {
        for hop in &path.hops {
            if let Ok(at) = ranges.binary_search_by_key(&hop.server, |range| range.server) {
                let slots = &mut ranges[at].slots;
                *slots = slots.saturating_add(path.capacity.saturating_mul(hop.blocks));
            }
        }
    }
    ranges.retain(|range| range.slots > 0);
    Placement { ranges, paths, reserved_jobs, ..Placement::default() }
}

/// Mean of the paths' service times by their capacities, in nanoseconds: what a request takes when all are full. 0
/// without paths.
#[must_use]
pub fn mean_service_ns(paths: &[Path]) -> u64 {
    let jobs: u128 = paths.iter().map(|path| u128::from(path.capacity)).sum();
    let time: u128 = paths.iter().map(|path| u128::from(path.capacity) * u128::from(path.service_ns)).sum();
    time.checked_div(jobs).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0)
}

/// The mean time of a request on these paths in nanoseconds, 0 for unknown, and what that figure is, for people. It is
/// Theorem 4's lower bound; without a rate the mean service time; unknown if the paths do not keep up with the rate.
#[must_use]
pub fn predict(paths: &[Path], demand: Demand) -> (u64, String) {
    let pools: Vec<Pool> = paths.iter().map(Pool::from).collect();
    match bounds(&pools, demand.per_s) {
        Some(found) if demand.per_s > 0.0 => {
            let what = format!(
                "the predicted time is Theorem 4's lower bound at {:.3} requests/s, its upper one is {:.3} s",
                demand.per_s, found.seconds_high
            );
            // A number that is no whole one of 64 bits becomes the nearest that is.
            ((found.seconds_low * 1e9) as u64, what)
        }
        Some(_) => {
            let what = "no rate is known: the predicted time is the paths' mean by jobs, without waiting";
            (mean_service_ns(paths), what.to_owned())
        }
        None => (0, format!("it does not keep up with {:.3} requests/s, so no time is predicted", demand.per_s)),
    }
}

/// Whether the ready servers hold these ranges already, and the fleet has these paths, in whatever order. Predicted
/// times may differ: they are measured again and again.
#[must_use]
pub fn is_present(plan: &Placement, fleet: &Fleet) -> bool {
    let holds = |server: &Server| {
        let range = plan.ranges.iter().find(|range| range.server == server.id);
        match range {
            Some(range) => (range.first_block, range.blocks) == (server.first_block, server.blocks),
            None => server.blocks == 0,
        }
    };
    plan.paths.len() == fleet.paths.len()
        && fleet.servers.iter().filter(|server| server.state == Health::Ready).all(holds)
        && in_order(&plan.paths) == in_order(&fleet.paths)
}

/// A path without its time: server, first block and blocks of each hop, and the capacity.
type Way = (Vec<(ServerId, u32, u32)>, u32);

/// The paths' ways in an order that does not depend on that of the paths.
fn in_order(paths: &[Path]) -> Vec<Way> {
    let hops = |path: &Path| path.hops.iter().map(|hop| (hop.server, hop.first_block, hop.blocks)).collect();
    let mut found: Vec<_> = paths.iter().map(|path| (hops(path), path.capacity)).collect();
    found.sort_unstable();
    found
}
