//! The exports of the `place` slot: records from the contract's form to the SDK's, and back.

use super::{Export, failure, with_driver};
use crate::bindings::full_policy::exports::pointsman::policy::place;
use crate::place::{
    Fleet, Health, Hop, Link, Model, Outcome, Path, PlacePolicy, Placement, Range, Server, ServerId, Workload,
};

impl<E: Export<Policy: PlacePolicy>> place::Guest for E {
    fn propose(m: place::Model, w: place::Workload, now: place::Fleet) -> Result<place::Outcome, place::Failure> {
        let outcome = with_driver::<E, _>(|driver| driver.propose(&model(&m), &workload(&w), &fleet(now)));
        Ok(match outcome.map_err(failure)? {
            Outcome::Keep => place::Outcome::Keep,
            Outcome::Replace(plan) => place::Outcome::Replace(placement(plan)),
            Outcome::Infeasible(why) => place::Outcome::Infeasible(why),
        })
    }
}

fn model(it: &place::Model) -> Model {
    Model {
        blocks: it.blocks,
        block_bytes: it.block_bytes,
        slot_bytes: it.slot_bytes,
        head_bytes: it.head_bytes,
        tail_bytes: it.tail_bytes,
    }
}

fn workload(it: &place::Workload) -> Workload {
    Workload {
        rate_milli: it.rate_milli,
        prompt_p50: it.prompt_p50,
        prompt_p95: it.prompt_p95,
        output_p50: it.output_p50,
        output_p95: it.output_p95,
        load_max_milli: it.load_max_milli,
        ttft_slo: it.ttft_slo,
        tpot_slo: it.tpot_slo,
    }
}

fn fleet(it: place::Fleet) -> Fleet {
    Fleet {
        epoch: it.epoch,
        servers: it.servers.iter().map(server).collect(),
        links: it.links.iter().map(link).collect(),
        paths: it.paths.into_iter().map(path).collect(),
    }
}

fn server(it: &place::Server) -> Server {
    Server {
        id: ServerId(it.id),
        state: match it.state {
            place::Health::Ready => Health::Ready,
            place::Health::Draining => Health::Draining,
            place::Health::Gone => Health::Gone,
        },
        mem_bytes: it.mem_bytes,
        visit_ns: it.visit_ns,
        block_ns: it.block_ns,
        first_block: it.first_block,
        blocks: it.blocks,
    }
}

fn link(it: &place::Link) -> Link {
    Link { src: ServerId(it.src), dst: ServerId(it.dst), rtt: it.rtt, mbytes_per_s: it.mbytes_per_s }
}

fn path(it: place::Path) -> Path {
    let hop = |it: &place::Hop| Hop { server: ServerId(it.server), first_block: it.first_block, blocks: it.blocks };
    Path { hops: it.hops.iter().map(hop).collect(), capacity: it.capacity, service_ns: it.service_ns }
}

fn placement(it: Placement) -> place::Plan {
    let hop = |it: &Hop| place::Hop { server: it.server.0, first_block: it.first_block, blocks: it.blocks };
    let path = |it: &Path| place::Path {
        hops: it.hops.iter().map(hop).collect(),
        capacity: it.capacity,
        service_ns: it.service_ns,
    };
    let range = |it: &Range| place::Range {
        server: it.server.0,
        first_block: it.first_block,
        blocks: it.blocks,
        slots: it.slots,
    };
    place::Plan {
        ranges: it.ranges.iter().map(range).collect(),
        paths: it.paths.iter().map(path).collect(),
        reserved_jobs: it.reserved_jobs,
        predicted_ns: it.predicted_ns,
        note: it.note,
    }
}
