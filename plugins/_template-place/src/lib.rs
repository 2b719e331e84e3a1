//! The smallest honest policy for the `place` slot, and a tour of it. Copy this folder and change `propose`.
//!
//! What a policy may rely on:
//! 1. `propose` is asked rarely, with the whole fleet, and has seconds of budget and 256 MiB.
//! 2. A plan says which contiguous range of blocks each server holds, and which paths requests take. Each path computes every
//!    block once, in order; `slots` of a range must cover what its paths reserve there: capacity times blocks.
//! 3. The host checks the plan by exact arithmetic and names the rule that it breaks. `Infeasible` is an honest answer.
//!
//! The cluster that `init` is given is empty: everything is in the question.

use pointsman_sdk::{
    Cluster, Fleet, Health, Hop, InitError, Model, Outcome, Path, PlacePolicy, Placement, Policy, Range, Workload,
    no_knobs,
};

/// Gives the whole model to the first server that can hold it, with as many jobs as there is room for.
pub struct OneServer;

impl Policy for OneServer {
    const NAME: &str = "policy-template";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Reads the configuration and makes the policy. One with settings parses `config` here and refuses unknown keys.
    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

/// Jobs that a path may have at once.
const JOBS_MAX: u64 = 256;

impl PlacePolicy for OneServer {
    fn propose(&mut self, model: &Model, _workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        let (blocks, weights) = (model.blocks, model.range_bytes(0, model.blocks));
        let job = model.slot_bytes.max(1).saturating_mul(blocks.max(1).into());
        let ready = fleet.servers.iter().filter(|server| server.state == Health::Ready);
        for server in ready {
            // 32 bits must hold the slots.
            let most = JOBS_MAX.min(u64::from(u32::MAX) / u64::from(blocks.max(1)));
            let capacity = (server.mem_bytes.saturating_sub(weights) / job).min(most) as u32;
            if blocks == 0 || capacity == 0 || server.mem_bytes < weights {
                continue;
            }
            let service_ns = server.block_ns.saturating_mul(blocks.into()).saturating_add(server.visit_ns);
            let hops = vec![Hop { server: server.id, first_block: 0, blocks }];
            return Ok(Outcome::Replace(Placement {
                ranges: vec![Range { server: server.id, first_block: 0, blocks, slots: capacity * blocks }],
                paths: vec![Path { hops, capacity, service_ns }],
                reserved_jobs: capacity,
                predicted_ns: service_ns,
                note: String::new(),
            }));
        }
        Ok(Outcome::Infeasible(format!("no server has room for {weights} bytes of weights and one job of {job}")))
    }
}

pointsman_sdk::export_policy!(OneServer: place);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::Harness;
    use pointsman_sdk::{Server, ServerId};

    #[test]
    fn takes_the_first_server_with_room() {
        let mut policy = Harness::<OneServer>::new("", Cluster::new(0, 0, Vec::new(), 0)).unwrap();
        let model = Model { blocks: 4, block_bytes: 100, slot_bytes: 10, head_bytes: 20, tail_bytes: 30 };
        let server = |id, mem_bytes| Server { id: ServerId(id), mem_bytes, ..Server::default() };
        let mut fleet = Fleet { servers: vec![server(1, 489), server(2, 530)], ..Fleet::default() };
        let Outcome::Replace(plan) = policy.propose(&model, &Workload::default(), &fleet).unwrap() else { panic!() };
        // 450 bytes of weights, and 40 for each job.
        assert_eq!(plan.ranges, [Range { server: ServerId(2), first_block: 0, blocks: 4, slots: 8 }]);
        assert_eq!(plan.paths[0].capacity, 2);
        fleet.servers.pop();
        assert!(matches!(policy.propose(&model, &Workload::default(), &fleet), Ok(Outcome::Infeasible(_))));
    }
}
