//! Questions and answers of the `place` slot between the engine's types and the SDK's.

use pointsman_engine::placement::synth::Scene;
use pointsman_engine::placement::{self, Plan};
use pointsman_policy::place::Proposal;
use pointsman_sdk::{Fleet, Health, Hop, Model, Outcome, Path, Server, ServerId, Workload};

/// A scene as the SDK shows it.
#[must_use]
pub fn question(scene: &Scene) -> (Model, Workload, Fleet) {
    let placement::Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes } = scene.model;
    let it = scene.workload;
    let workload = Workload {
        rate_milli: it.rate_milli,
        prompt_p50: it.prompt_p50,
        prompt_p95: it.prompt_p95,
        output_p50: it.output_p50,
        output_p95: it.output_p95,
        load_max_milli: it.load_max_milli,
        ttft_slo: it.ttft_slo.0,
        tpot_slo: it.tpot_slo.0,
    };
    let fleet = Fleet {
        epoch: scene.fleet.epoch,
        servers: scene.fleet.servers.iter().map(server).collect(),
        links: Vec::new(),
        paths: scene.fleet.paths.iter().map(path).collect(),
    };
    (Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes }, workload, fleet)
}

fn server(it: &placement::Server) -> Server {
    let state = match it.state {
        placement::Health::Ready => Health::Ready,
        placement::Health::Draining => Health::Draining,
        placement::Health::Gone => Health::Gone,
    };
    let placement::Server { mem_bytes, visit_ns, block_ns, first_block, blocks, .. } = *it;
    Server { id: ServerId(it.id.0), state, mem_bytes, visit_ns, block_ns, first_block, blocks }
}

fn path(it: &placement::Path) -> Path {
    let hop =
        |it: &placement::Hop| Hop { server: ServerId(it.server.0), first_block: it.first_block, blocks: it.blocks };
    Path { hops: it.hops.iter().map(hop).collect(), capacity: it.capacity, service_ns: it.service_ns }
}

/// An answer as the host hands it on.
#[must_use]
pub fn proposal(outcome: Outcome) -> Proposal {
    let hop = |it: Hop| placement::Hop {
        server: placement::ServerId(it.server.0),
        first_block: it.first_block,
        blocks: it.blocks,
    };
    match outcome {
        Outcome::Keep => Proposal::Keep,
        Outcome::Infeasible(why) => Proposal::Infeasible(why),
        Outcome::Replace(plan) => Proposal::Replace(Plan {
            ranges: plan
                .ranges
                .into_iter()
                .map(|it| placement::Range {
                    server: placement::ServerId(it.server.0),
                    first_block: it.first_block,
                    blocks: it.blocks,
                    slots: it.slots,
                })
                .collect(),
            paths: plan
                .paths
                .into_iter()
                .map(|it| placement::Path {
                    hops: it.hops.into_iter().map(hop).collect(),
                    capacity: it.capacity,
                    service_ns: it.service_ns,
                })
                .collect(),
            reserved_jobs: plan.reserved_jobs,
            predicted_ns: plan.predicted_ns,
            note: plan.note,
        }),
    }
}
