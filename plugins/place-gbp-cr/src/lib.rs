//! Server chains: fast servers stand with fast servers, and memory is kept free for a number of jobs that is computed.
//!
//! The composition of "server chains" (arXiv 2604.14993), sections 3 and 4, as [`pointsman_sdk::chains`] has it. For
//! each question:
//!
//! 1. Only ready servers are planned with.
//! 2. A number of jobs is chosen for which each server reserves: the one whose plan has the least lower bound of the
//!    mean time at the workload's rate (Theorem 4), or the paper's surrogate (9), or the operator's.
//! 3. GBP-CR gives each server its range, GCA finds the paths through them.
//! 4. The prediction is that lower bound, what jobs would take if they could always change to the fastest path.
//!
//! Nothing is kept between questions: the same question has the same answer.

use pointsman_sdk::chains::{self, CAPACITY_MAX, Choice, Demand, STEPS, Variant};
use pointsman_sdk::{
    Cluster, Fleet, Health, InitError, Model, Outcome, PlacePolicy, Placement, Policy, Server, Workload, knobs,
};

/// The policy: how far it forms chains, and how it chooses the jobs to reserve for.
pub struct GbpCr {
    variant: Variant,
    reserve: Reserve,
}

#[derive(Clone, Copy)]
enum Reserve {
    /// Theorem 4's lower bound, the least over every number.
    Bound,
    /// Equation (9).
    Surrogate,
    /// So many, or as many as fit if that is less.
    Jobs(u32),
}

impl Policy for GbpCr {
    const NAME: &str = "place-gbp-cr";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let given = knobs(config, &["jobs", "reserve", "variant"])?;
        let variant = match given.choice("variant", &["max", "stop"], "max")? {
            "stop" => Variant::Stop,
            _ => Variant::Max,
        };
        let reserve = given.choice("reserve", &["bound", "surrogate"], "bound")?;
        let jobs = given.number("jobs", 0..=u64::from(CAPACITY_MAX), 0)? as u32;
        let reserve = match (jobs, reserve) {
            (0, "surrogate") => Reserve::Surrogate,
            (0, _) => Reserve::Bound,
            _ => Reserve::Jobs(jobs),
        };
        Ok(Self { variant, reserve })
    }

    fn dump(&self) -> String {
        let variant = match self.variant {
            Variant::Max => "max",
            Variant::Stop => "stop",
        };
        let (reserve, jobs) = match self.reserve {
            Reserve::Bound => ("bound", 0),
            Reserve::Surrogate => ("surrogate", 0),
            Reserve::Jobs(jobs) => ("jobs", jobs),
        };
        format!("{{\"variant\":\"{variant}\",\"reserve\":\"{reserve}\",\"jobs\":{jobs}}}")
    }
}

impl PlacePolicy for GbpCr {
    fn propose(&mut self, model: &Model, workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        let ready: Vec<Server> = fleet.servers.iter().filter(|it| it.state == Health::Ready).copied().collect();
        let demand = Demand::of(workload);
        let Some(choice) = self.choose(model, &ready, demand) else {
            return Ok(Outcome::Infeasible(why_not(model, &ready, fleet)));
        };
        let plan = plan(choice, demand, ready.len());
        Ok(if chains::is_present(&plan, fleet) { Outcome::Keep } else { Outcome::Replace(plan) })
    }
}

pointsman_sdk::export_policy!(GbpCr: place);

impl GbpCr {
    /// The composition that is proposed; none if there are no paths with whatever reservation.
    fn choose(&self, model: &Model, ready: &[Server], demand: Demand) -> Option<Choice> {
        let mut steps = STEPS;
        let jobs = match self.reserve {
            Reserve::Jobs(jobs) => Some(jobs),
            Reserve::Surrogate => chains::by_surrogate(model, ready, demand),
            Reserve::Bound => None,
        };
        match jobs {
            Some(jobs) => {
                let mut fewer = (1..=jobs.min(chains::jobs_max(model, ready))).rev();
                fewer.find_map(|jobs| chains::compose(model, ready, jobs, self.variant, demand, &mut steps))
            }
            None => chains::by_bound(model, ready, self.variant, demand, &mut steps),
        }
    }
}

fn plan(choice: Choice, demand: Demand, ready: usize) -> Placement {
    let mut plan = chains::plan(&choice.placed, choice.paths, choice.jobs);
    let jobs: u64 = plan.paths.iter().map(|path| u64::from(path.capacity)).sum();
    let (predicted_ns, prediction) = chains::predict(&plan.paths, demand);
    plan.predicted_ns = predicted_ns;
    plan.note = format!(
        "server chains: {} paths over {} of {ready} ready servers for {jobs} jobs, {:.3} requests/s when full, {} \
         reserved for; {prediction}",
        plan.paths.len(),
        plan.ranges.len(),
        choice.per_s,
        choice.jobs,
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
    let held: u64 = ready.iter().map(|server| u64::from(chains::room(model, server.mem_bytes, 1))).sum();
    let memory: u128 = ready.iter().map(|server| u128::from(server.mem_bytes)).sum();
    let &Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes } = model;
    format!(
        "no chain of servers holds {blocks} blocks of {block_bytes} bytes with {slot_bytes} for one \
         job's keys and values, {head_bytes} beside the first and {tail_bytes} beside the last: {} ready servers of \
         {memory} bytes hold {held} such blocks, and a path has {} servers at most",
        ready.len(),
        chains::HOPS_MAX,
    )
}

#[cfg(test)]
mod tests;
