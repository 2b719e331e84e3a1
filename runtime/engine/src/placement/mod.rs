//! Plans for the blocks of a model: which server holds which, and which paths requests take through them.
//!
//! The vocabulary of the slot `place` (`sdk/wit`, interface `place`), field by field, and [`check`], which tells by
//! exact arithmetic whether a plan can be carried out. Called by whoever asks a placement policy; a plan is advice
//! until it has passed. [`synth`] makes questions up, for exams of policies.
//!
//! A block is a layer of the model here, counted from 0, and not one of a chain's KV store. A block slot is room for
//! the keys and values of one job in one block. Nothing is carried out in here, and nothing says which of two plans
//! is better.

mod check;
pub mod synth;

pub use check::{Violation, check};

use crate::ids::Micros;

/// A GPU, a slice of one, or a CPU worker with a memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Whether a server can be planned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// It is not there any more.
    Gone,
}

impl Health {
    /// The name used in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

/// One server, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Which.
    pub id: ServerId,
    /// Whether it can be planned with.
    pub state: Health,
    /// Bytes for blocks and for keys and values together.
    pub mem_bytes: u64,
    /// Mean time that a visit costs beside computing, in nanoseconds.
    pub visit_ns: u64,
    /// Mean time to compute one block, in nanoseconds.
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
    /// Bytes of one block slot, at the reserved length.
    pub slot_bytes: u64,
    /// Bytes that are needed beside the first block.
    pub head_bytes: u64,
    /// Bytes that are needed beside the last block.
    pub tail_bytes: u64,
}

/// What is to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Requests in 1000 seconds.
    pub rate_milli: u64,
    /// Median prompt, in tokens.
    pub prompt_p50: u32,
    /// 95th percentile of prompts, in tokens.
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

/// The blocks that a path computes on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where.
    pub server: ServerId,
    /// The first of them.
    pub first_block: u32,
    /// How many, at least 1.
    pub blocks: u32,
}

/// A way through servers that computes each block once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// In order; 1..=[`crate::limits::CHAIN_STAGES_MAX`].
    pub hops: Vec<Hop>,
    /// Jobs at once, each with its slots reserved on every hop; 1..=[`crate::limits::CHAIN_JOBS_MAX`].
    pub capacity: u32,
    /// What the policy predicts for a visit to all its servers, in nanoseconds. [`service_ns`] is the host's own
    /// figure.
    pub service_ns: u64,
}

/// Who is there, and the present plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Grows with every change of membership.
    pub epoch: u64,
    /// Ascending by id; at most [`crate::limits::SERVERS_MAX`].
    pub servers: Vec<Server>,
    /// Empty unless the policy asked for them.
    pub links: Vec<Link>,
    /// The paths of the present plan.
    pub paths: Vec<Path>,
}

impl Fleet {
    /// The server of this id, found by halving: a fleet out of order may hide it.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        let at = self.servers.binary_search_by_key(&id, |server| server.id).ok()?;
        self.servers.get(at)
    }
}

/// What a server is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which server.
    pub server: ServerId,
    /// The first block.
    pub first_block: u32,
    /// How many, at least 1.
    pub blocks: u32,
    /// Block slots that are reserved. All paths together need their capacity times the blocks of their hops here.
    pub slots: u32,
}

/// A whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// At most one a server.
    pub ranges: Vec<Range>,
    /// 1..=[`crate::limits::CHAINS_MAX`].
    pub paths: Vec<Path>,
    /// Jobs for which every server reserved; 0 if that is not how the policy reserves. Not checked.
    pub reserved_jobs: u32,
    /// Predicted mean time of a request, in nanoseconds; 0 for unknown. Not checked.
    pub predicted_ns: u64,
    /// For people. Not checked.
    pub note: String,
}

/// Time of a job on this path without waiting, in nanoseconds: for each hop the server's visit and its blocks. That
/// is T of equation (2) of the server-chain paper (arXiv:2604.14993). It stops at the largest number. None when a
/// server of the path is not in the fleet.
#[must_use]
pub fn service_ns(fleet: &Fleet, path: &Path) -> Option<u64> {
    path.hops.iter().try_fold(0_u64, |sum, hop| {
        let server = fleet.server(hop.server)?;
        let computing = server.block_ns.saturating_mul(u64::from(hop.blocks));
        Some(sum.saturating_add(server.visit_ns).saturating_add(computing))
    })
}

#[cfg(test)]
mod tests;
