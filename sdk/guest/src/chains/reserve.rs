//! For how many jobs every server reserves: the search for the paper's c.
//!
//! Called by policies. With a small c chains are short and fast, and few jobs fit on them; with a large one it is the
//! other way round. Two ways to choose. The surrogate, equation (9), looks at the chains of Algorithm 1 only: the
//! least jobs in all with which they keep up. Or each c is composed to the end, and the one with the least lower
//! bound of the mean time is taken, which the paper found to be the better choice.

use super::{Bounds, CAPACITY_MAX, Composition, Placed, Pool, Until, bounds, gbp_cr, gca, mean_service_ns, total_rate};
use crate::place::{Model, Path, Server, Workload};

/// How far chains are formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// As many as there can be.
    #[default]
    Max,
    /// Until they keep up with the requests.
    Stop,
}

/// What is to be served, and how full the paths may become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Requests a second.
    pub per_s: f64,
    /// The load that may be planned for, above 0 and up to 1.
    pub load_max: f64,
}

impl Demand {
    /// The paper's load, for workloads that name none.
    const LOAD: f64 = 0.7;

    /// The demand of a workload. A load of 0 is taken for the paper's 0.7, one above 1 for 1.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let load_max = match workload.load_max_milli {
            0 => Self::LOAD,
            milli => f64::from(milli.min(1000)) / 1000.0,
        };
        Self { per_s: workload.rate_milli as f64 / 1000.0, load_max }
    }

    /// Jobs a second that chains must finish together, each one at a time, if each is to take `jobs`.
    #[must_use]
    pub fn need(self, jobs: u32) -> f64 {
        self.per_s / (self.load_max * f64::from(jobs.max(1)))
    }
}

/// A placement with its paths, for one c.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Jobs for which every server reserved.
    pub jobs: u32,
    /// What each server holds.
    pub placed: Vec<Placed>,
    /// At least one, the fastest first.
    pub paths: Vec<Path>,
    /// Jobs a second that all paths finish together when they are full.
    pub per_s: f64,
    /// Theorem 4 for the demand's rate; none if the paths do not keep up with it.
    pub bounds: Option<Bounds>,
}

/// The most jobs that are worth reserving for: so many that the largest server still holds one block with them, and no
/// more than [`CAPACITY_MAX`]. 0 if no server holds a block with one job.
#[must_use]
pub fn jobs_max(model: &Model, servers: &[Server]) -> u32 {
    let most = servers.iter().map(|server| server.mem_bytes).max().unwrap_or(0);
    match most.checked_sub(model.block_bytes) {
        None => 0,
        Some(free) => free.checked_div(model.slot_bytes).unwrap_or(u64::MAX).min(CAPACITY_MAX.into()) as u32,
    }
}

/// The chains for so many jobs.
fn chains(model: &Model, servers: &[Server], jobs: u32, variant: Variant, demand: Demand) -> Composition {
    let until = match variant {
        Variant::Max => Until::Exhausted,
        Variant::Stop => Until::Rate(demand.need(jobs)),
    };
    gbp_cr(model, servers, jobs, until)
}

/// The placement for so many jobs, with its paths; none if no path comes about. `steps` as for [`gca`].
#[must_use]
pub fn compose(
    model: &Model,
    servers: &[Server],
    jobs: u32,
    variant: Variant,
    demand: Demand,
    steps: &mut u64,
) -> Option<Choice> {
    allocate(model, chains(model, servers, jobs, variant, demand).placed, jobs, demand, steps)
}

fn allocate(model: &Model, placed: Vec<Placed>, jobs: u32, demand: Demand, steps: &mut u64) -> Option<Choice> {
    let paths = gca(model, &placed, steps);
    if paths.is_empty() {
        return None;
    }
    let pools: Vec<Pool> = paths.iter().map(Pool::from).collect();
    let (per_s, bounds) = (total_rate(&pools), bounds(&pools, demand.per_s));
    Some(Choice { jobs, placed, paths, per_s, bounds })
}

/// The c with the least c K(c), equation (9), for K(c) chains of Algorithm 1 that keep up; of equal ones the smallest.
/// None if the chains of no c keep up.
///
/// Algorithm 1 stops here whatever is placed later: without stopping, K(c) would be no measure of what is needed.
#[must_use]
pub fn by_surrogate(model: &Model, servers: &[Server], demand: Demand) -> Option<u32> {
    let cost = |jobs: u32| {
        let made = chains(model, servers, jobs, Variant::Stop, demand);
        let enough = !made.times_ns.is_empty() && made.per_s >= demand.need(jobs);
        enough.then(|| (u64::from(jobs) * made.times_ns.len() as u64, jobs))
    };
    (1..=jobs_max(model, servers)).filter_map(cost).min().map(|(_, jobs)| jobs)
}

/// The composition with the least lower bound of the mean time, over every c; of equal ones the one with the less mean
/// service time, then the one that finishes more, then the smallest c. Where no paths keep up, those that finish most.
/// None if there are no paths.
///
/// A c that places as the one before it is passed over. The others are gone through in large strides first, so that the
/// best so far is a fair one when `steps` are used up.
#[must_use]
pub fn by_bound(
    model: &Model,
    servers: &[Server],
    variant: Variant,
    demand: Demand,
    steps: &mut u64,
) -> Option<Choice> {
    let mut tasks: Vec<(u32, Vec<Placed>)> = Vec::new();
    for jobs in 1..=jobs_max(model, servers) {
        let placed = chains(model, servers, jobs, variant, demand).placed;
        if !placed.is_empty() && tasks.last().is_none_or(|(_, before)| *before != placed) {
            tasks.push((jobs, placed));
        }
    }
    let mut best: Option<Choice> = None;
    // 0, 16, 32, ...; then 4, 8, 12, 20, ...; then the rest.
    let round = |at: usize| [16, 4, 1].iter().position(|stride| at.is_multiple_of(*stride));
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&at| round(at));
    for at in order {
        let (jobs, placed) = std::mem::take(&mut tasks[at]);
        if *steps == 0 {
            break;
        }
        if let Some(choice) = allocate(model, placed, jobs, demand, steps)
            && best.as_ref().is_none_or(|best| choice.is_better(best))
        {
            best = Some(choice);
        }
    }
    best
}

impl Choice {
    fn is_better(&self, other: &Self) -> bool {
        let low = |it: &Self| it.bounds.map_or(f64::INFINITY, |bounds| bounds.seconds_low);
        let by_mean = || match self.bounds {
            Some(_) => mean_service_ns(&self.paths).cmp(&mean_service_ns(&other.paths)),
            None => std::cmp::Ordering::Equal,
        };
        let by_rate = || other.per_s.total_cmp(&self.per_s);
        let by_jobs = || self.jobs.cmp(&other.jobs);
        low(self).total_cmp(&low(other)).then_with(by_mean).then_with(by_rate).then_with(by_jobs).is_lt()
    }
}
