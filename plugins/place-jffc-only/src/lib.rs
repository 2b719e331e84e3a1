//! No chains at all: the whole model on every server that can hold it, each server a path of its own.
//!
//! The paper on server chains (arXiv 2604.14993, section 4) measures this as "JFFC only", for what is left if nothing
//! is composed and only requests are sent to the fastest server that is free. The steps:
//!
//! 1. Each ready server is asked how many jobs' keys and values fit beside the whole model with both its ends.
//! 2. Each that has room for one job is a path, for as many jobs as fit, 256 at most.
//!
//! What a server does depends on no other, so one that comes or goes moves nobody's blocks.

use pointsman_sdk::chains::{self, Demand, PATHS_MAX, Placed};
use pointsman_sdk::{
    Cluster, Fleet, Health, InitError, Model, Outcome, PlacePolicy, Placement, Policy, Server, Workload, no_knobs,
};

/// The policy. It has neither settings nor a memory.
pub struct JffcOnly;

impl Policy for JffcOnly {
    const NAME: &str = "place-jffc-only";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl PlacePolicy for JffcOnly {
    fn propose(&mut self, model: &Model, workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        let ready: Vec<Server> = fleet.servers.iter().filter(|it| it.state == Health::Ready).copied().collect();
        let placed = whole(model, &ready);
        if placed.is_empty() {
            return Ok(Outcome::Infeasible(why_not(model, &ready, fleet)));
        }
        let plan = plan(model, &placed, Demand::of(workload), ready.len());
        Ok(if chains::is_present(&plan, fleet) { Outcome::Keep } else { Outcome::Replace(plan) })
    }
}

pointsman_sdk::export_policy!(JffcOnly: place);

/// The servers that hold the whole model with one job's keys and values, so many as there may be paths.
fn whole(model: &Model, ready: &[Server]) -> Vec<Placed> {
    let all = ready.iter().map(|&server| Placed { server, first_block: 0, blocks: model.blocks });
    all.filter(|it| it.blocks > 0 && chains::fits(model, it, 1)).take(PATHS_MAX).collect()
}

fn plan(model: &Model, placed: &[Placed], demand: Demand, ready: usize) -> Placement {
    // Each range is a path from the first block to the last; the number of hops is that of servers.
    let mut steps = chains::STEPS;
    let mut paths = chains::gca(model, placed, &mut steps);
    paths.sort_by_key(|path| path.hops.first().map(|hop| hop.server));
    let (predicted_ns, prediction) = chains::predict(&paths, demand);
    let jobs: u64 = paths.iter().map(|path| u64::from(path.capacity)).sum();
    let mut plan = chains::plan(placed, paths, 0);
    plan.predicted_ns = predicted_ns;
    plan.note = format!(
        "the whole model on each of {} of {ready} ready servers, for {jobs} jobs; {prediction}",
        plan.paths.len()
    );
    plan
}

fn why_not(model: &Model, ready: &[Server], fleet: &Fleet) -> String {
    if model.blocks == 0 {
        return "the model has no blocks".to_owned();
    }
    if ready.is_empty() {
        return format!("none of {} servers is ready", fleet.servers.len());
    }
    let largest = ready.iter().map(|server| server.mem_bytes).max().unwrap_or(0);
    let &Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes } = model;
    let each = u128::from(block_bytes) + u128::from(slot_bytes);
    let need = u128::from(blocks) * each + u128::from(head_bytes) + u128::from(tail_bytes);
    format!(
        "no server holds the whole model: {blocks} blocks of {block_bytes} bytes with {slot_bytes} for one job's keys \
         and values, {head_bytes} beside the first and {tail_bytes} beside the last are {need} bytes, and the largest \
         of {} ready servers has {largest}",
        ready.len(),
    )
}

#[cfg(test)]
mod tests;
