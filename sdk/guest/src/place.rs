//! The `place` slot: the trait, its question and its answer.

use crate::cluster::Micros;
use crate::policy::{InitError, Policy};

/// A policy for the `place` slot: which server holds which blocks of the model, and which paths requests take through them.
///
/// Asked rarely, with seconds of budget and 256 MiB. The cluster that `init` is given is empty.
pub trait PlacePolicy: Policy {
    /// A whole plan for `fleet`, or none.
    ///
    /// # Errors
    /// The policy can not work with this question at all. That a model does not fit is [`Outcome::Infeasible`].
    fn propose(&mut self, model: &Model, workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError>;
}

/// A server's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Whether a server can be planned with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It can.
    #[default]
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// It is not there any more.
    Gone,
}

/// A GPU, a slice of one, or a CPU worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Which.
    pub id: ServerId,
    /// Whether it can be planned with.
    pub state: Health,
    /// Bytes for blocks and for keys and values together.
    pub mem_bytes: u64,
    /// Mean time that a visit costs beside computing, in nanoseconds: the paper's tau_c.
    pub visit_ns: u64,
    /// Mean time to compute one block, in nanoseconds: the paper's tau_p.
    pub block_ns: u64,
    /// First block that it holds now.
    pub first_block: u32,
    /// How many it holds; 0 for none.
    pub blocks: u32,
}

/// A connection between two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From.
    pub src: ServerId,
    /// To.
    pub dst: ServerId,
    /// Round trip.
    pub rtt: Micros,
    /// Bandwidth in megabytes a second.
    pub mbytes_per_s: u32,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Blocks, that is layers.
    pub blocks: u32,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Bytes of the keys and values of one job in one block, at the reserved length.
    pub slot_bytes: u64,
    /// What is needed beside the first block.
    pub head_bytes: u64,
    /// What is needed beside the last block.
    pub tail_bytes: u64,
}

impl Model {
    /// Bytes of a range of blocks, with what belongs to the model's ends.
    #[must_use]
    pub fn range_bytes(&self, first_block: u32, blocks: u32) -> u64 {
        let ends_there = first_block.saturating_add(blocks) == self.blocks;
        let head = if first_block == 0 { self.head_bytes } else { 0 };
        let tail = if ends_there { self.tail_bytes } else { 0 };
        u64::from(blocks).saturating_mul(self.block_bytes).saturating_add(head).saturating_add(tail)
    }
}

/// What is to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Requests in 1000 seconds.
    pub rate_milli: u64,
    /// Median prompt, in tokens.
    pub prompt_p50: u32,
    /// 95th percentile of prompts.
    pub prompt_p95: u32,
    /// Median of new tokens.
    pub output_p50: u32,
    /// 95th percentile of new tokens.
    pub output_p95: u32,
    /// The load that may be planned for, in thousandths.
    pub load_max_milli: u32,
    /// Wanted time to the first token, 0 for none.
    pub ttft_slo: Micros,
    /// Wanted time per output token, 0 for none.
    pub tpot_slo: Micros,
}

/// Who is there, and the present plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Grows with every change of membership.
    pub epoch: u64,
    /// Ascending by id.
    pub servers: Vec<Server>,
    /// Empty unless [`Policy::NEEDS`] has `link_matrix`.
    pub links: Vec<Link>,
    /// The paths of the present plan.
    pub paths: Vec<Path>,
}

/// The blocks that a path computes on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where.
    pub server: ServerId,
    /// The first of them.
    pub first_block: u32,
    /// How many.
    pub blocks: u32,
}

/// A way through servers that computes each block once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// In order.
    pub hops: Vec<Hop>,
    /// Jobs at once, each with its keys and values reserved on every hop.
    pub capacity: u32,
    /// Predicted time of a visit to all its servers, in nanoseconds.
    pub service_ns: u64,
}

/// What a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which server.
    pub server: ServerId,
    /// The first block.
    pub first_block: u32,
    /// How many, at least 1.
    pub blocks: u32,
    /// Reserved block slots: over all paths, capacity times the blocks of their hops here.
    pub slots: u32,
}

/// A whole plan. The host checks it by exact arithmetic and names the rule that it breaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// At most one a server.
    pub ranges: Vec<Range>,
    /// At least one.
    pub paths: Vec<Path>,
    /// Jobs for which every server reserved; 0 if that is not how this policy reserves.
    pub reserved_jobs: u32,
    /// Predicted mean time of a request, in nanoseconds; 0 for unknown.
    pub predicted_ns: u64,
    /// For people.
    pub note: String,
}

/// The answer of [`PlacePolicy::propose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The present plan stays.
    Keep,
    /// This one takes its place.
    Replace(Placement),
    /// The model does not fit these servers, and why.
    Infeasible(String),
}
