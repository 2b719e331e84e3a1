//! The records of the `place` slot, in the shapes of the contract.

use pointsman_engine::ids::Micros;
use pointsman_engine::placement;
use wasmtime::component::{ComponentType, Lift, Lower};

use super::records::Failure;

pub(super) type ProposeParams = (Model, Workload, Fleet);
pub(super) type Proposed = (Result<Outcome, Failure>,);

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub(super) enum Health {
    #[component(name = "ready")]
    Ready,
    #[component(name = "draining")]
    Draining,
    #[component(name = "gone")]
    Gone,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Server {
    id: u32,
    state: Health,
    #[component(name = "mem-bytes")]
    mem_bytes: u64,
    #[component(name = "visit-ns")]
    visit_ns: u64,
    #[component(name = "block-ns")]
    block_ns: u64,
    #[component(name = "first-block")]
    first_block: u32,
    blocks: u32,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Link {
    src: u32,
    dst: u32,
    rtt: u64,
    #[component(name = "mbytes-per-s")]
    mbytes_per_s: u32,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Model {
    blocks: u32,
    #[component(name = "block-bytes")]
    block_bytes: u64,
    #[component(name = "slot-bytes")]
    slot_bytes: u64,
    #[component(name = "head-bytes")]
    head_bytes: u64,
    #[component(name = "tail-bytes")]
    tail_bytes: u64,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Workload {
    #[component(name = "rate-milli")]
    rate_milli: u64,
    #[component(name = "prompt-p50")]
    prompt_p50: u32,
    #[component(name = "prompt-p95")]
    prompt_p95: u32,
    #[component(name = "output-p50")]
    output_p50: u32,
    #[component(name = "output-p95")]
    output_p95: u32,
    #[component(name = "load-max-milli")]
    load_max_milli: u32,
    #[component(name = "ttft-slo")]
    ttft_slo: u64,
    #[component(name = "tpot-slo")]
    tpot_slo: u64,
}

#[derive(Clone, Copy, ComponentType, Lower, Lift)]
#[component(record)]
pub(super) struct Hop {
    server: u32,
    #[component(name = "first-block")]
    first_block: u32,
    blocks: u32,
}

#[derive(ComponentType, Lower, Lift)]
#[component(record)]
pub(super) struct Path {
    hops: Vec<Hop>,
    capacity: u32,
    #[component(name = "service-ns")]
    service_ns: u64,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Fleet {
    epoch: u64,
    servers: Vec<Server>,
    links: Vec<Link>,
    paths: Vec<Path>,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(record)]
pub(super) struct Range {
    server: u32,
    #[component(name = "first-block")]
    first_block: u32,
    blocks: u32,
    slots: u32,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(super) struct Plan {
    ranges: Vec<Range>,
    paths: Vec<Path>,
    #[component(name = "reserved-jobs")]
    reserved_jobs: u32,
    #[component(name = "predicted-ns")]
    predicted_ns: u64,
    note: String,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum Outcome {
    #[component(name = "keep")]
    Keep,
    #[component(name = "replace")]
    Replace(Plan),
    #[component(name = "infeasible")]
    Infeasible(String),
}

impl From<&placement::Model> for Model {
    fn from(model: &placement::Model) -> Self {
        let placement::Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes } = *model;
        Self { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes }
    }
}

impl From<&placement::Workload> for Workload {
    fn from(workload: &placement::Workload) -> Self {
        let placement::Workload { rate_milli, prompt_p50, prompt_p95, output_p50, output_p95, .. } = *workload;
        let placement::Workload { load_max_milli, ttft_slo: Micros(ttft_slo), tpot_slo: Micros(tpot_slo), .. } =
            *workload;
        Self { rate_milli, prompt_p50, prompt_p95, output_p50, output_p95, load_max_milli, ttft_slo, tpot_slo }
    }
}

impl From<&placement::Fleet> for Fleet {
    fn from(fleet: &placement::Fleet) -> Self {
        Self {
            epoch: fleet.epoch,
            servers: fleet.servers.iter().map(Server::from).collect(),
            links: fleet.links.iter().map(Link::from).collect(),
            paths: fleet.paths.iter().map(Path::from).collect(),
        }
    }
}

impl From<&placement::Server> for Server {
    fn from(server: &placement::Server) -> Self {
        let placement::Server { id, state, mem_bytes, visit_ns, block_ns, first_block, blocks } = *server;
        let state = match state {
            placement::Health::Ready => Health::Ready,
            placement::Health::Draining => Health::Draining,
            placement::Health::Gone => Health::Gone,
        };
        Self { id: id.0, state, mem_bytes, visit_ns, block_ns, first_block, blocks }
    }
}

impl From<&placement::Link> for Link {
    fn from(link: &placement::Link) -> Self {
        Self { src: link.src.0, dst: link.dst.0, rtt: link.rtt.0, mbytes_per_s: link.mbytes_per_s }
    }
}

impl From<&placement::Path> for Path {
    fn from(path: &placement::Path) -> Self {
        let hop = |hop: &placement::Hop| Hop { server: hop.server.0, first_block: hop.first_block, blocks: hop.blocks };
        Self { hops: path.hops.iter().map(hop).collect(), capacity: path.capacity, service_ns: path.service_ns }
    }
}

impl From<Path> for placement::Path {
    fn from(path: Path) -> Self {
        let hop = |hop: Hop| placement::Hop {
            server: placement::ServerId(hop.server),
            first_block: hop.first_block,
            blocks: hop.blocks,
        };
        let Path { hops, capacity, service_ns } = path;
        Self { hops: hops.into_iter().map(hop).collect(), capacity, service_ns }
    }
}

impl From<Plan> for placement::Plan {
    fn from(plan: Plan) -> Self {
        let range = |range: Range| placement::Range {
            server: placement::ServerId(range.server),
            first_block: range.first_block,
            blocks: range.blocks,
            slots: range.slots,
        };
        Self {
            ranges: plan.ranges.into_iter().map(range).collect(),
            paths: plan.paths.into_iter().map(placement::Path::from).collect(),
            reserved_jobs: plan.reserved_jobs,
            predicted_ns: plan.predicted_ns,
            note: plan.note,
        }
    }
}
