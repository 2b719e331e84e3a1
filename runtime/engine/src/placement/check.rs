//! Can this plan be carried out? Every rule is an inequality of whole numbers, so the answer is the same everywhere.
//!
//! Called with each plan that a placement policy proposes, which may hold any numbers at all. The steps:
//!
//! 1. Counts: how many servers, ranges, paths and hops there are. Whatever is allocated later is bounded by them.
//! 2. Ranges: each is of one server that is ready, lies in the model and fits the server's memory with its slots.
//! 3. Paths: each computes every block of the model once and in order, each hop inside its server's range.
//! 4. Slots: all paths together need no more of a server's slots than its range reserves.
//!
//! The first rule that is broken is the answer, with both sides of its inequality. Sums and products are of 128 bits
//! and can not overflow: the factors have 32 or 64, and there are at most 2^15 summands.

use super::{Fleet, Health, Model, Path, Plan, Range, ServerId};
use crate::limits::{CHAIN_JOBS_MAX, CHAIN_STAGES_MAX, CHAINS_MAX, SERVERS_MAX};

/// The rule that a plan breaks, where, and by how much. Paths and hops are counted from 0; an `end` is the first
/// block behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum Violation {
    /// A model of nothing can not be placed.
    #[error("the model has no blocks")]
    NoBlocks,
    /// More servers than a fleet may have.
    #[error("the fleet has {found} servers of at most {max}")]
    Servers { found: usize, max: usize },
    /// The fleet is not ascending by id, so that an id may name two servers or none that can be found.
    #[error("server {}: its place in the fleet is not behind all smaller ids", .server.0)]
    Order { server: ServerId },
    /// More ranges than servers.
    #[error("the plan has {found} ranges for {servers} servers")]
    Ranges { found: usize, servers: usize },
    /// No path, or more than there may be.
    #[error("the plan has {found} paths, but must have 1 to {max}")]
    Paths { found: usize, max: usize },
    /// No hop, or more than there may be.
    #[error("path {path}: it has {found} hops, but must have 1 to {max}")]
    Hops { path: usize, found: usize, max: usize },
    /// No job, or more than there may be.
    #[error("path {path}: its capacity is {capacity}, but must be 1 to {max}")]
    Capacity { path: usize, capacity: u32, max: usize },
    /// A range on a server that is not in the fleet.
    #[error("server {}: the plan gives it a range, but there is no such server", .server.0)]
    UnknownServer { server: ServerId },
    /// A range on a server that takes nothing new.
    #[error("server {}: the plan gives it a range, but it is {}", .server.0, .state.name())]
    NotReady { server: ServerId, state: Health },
    /// A second range on one server.
    #[error("server {}: the plan gives it more than one range", .server.0)]
    SecondRange { server: ServerId },
    /// A range of nothing.
    #[error("server {}: its range has no blocks", .server.0)]
    EmptyRange { server: ServerId },
    /// A range beyond the model.
    #[error("server {}: its range ends at block {end} of {blocks}", .server.0)]
    OutsideModel { server: ServerId, end: u64, blocks: u32 },
    /// More bytes than the server has.
    #[error("server {}: {blocks} blocks and {slots} slots take {bytes} bytes of {mem_bytes}", .server.0)]
    Memory { server: ServerId, blocks: u32, slots: u32, bytes: u128, mem_bytes: u64 },
    /// A hop to a server without a range.
    #[error("path {path}, hop {hop}: server {} holds no range", .server.0)]
    NoRange { path: usize, hop: usize, server: ServerId },
    /// A hop that computes nothing.
    #[error("path {path}, hop {hop}: server {} computes no blocks", .server.0)]
    EmptyHop { path: usize, hop: usize, server: ServerId },
    /// A hop that leaves blocks out or computes some again.
    #[error("path {path}, hop {hop}: it begins at block {first_block}, but block {next} is next")]
    NotNext { path: usize, hop: usize, first_block: u32, next: u64 },
    /// A hop with blocks that its server does not hold.
    #[error(
        "path {path}, hop {hop}: it computes blocks {first_block} to {end}, \
         but server {} holds {held_first} to {held_end}",
        .server.0
    )]
    OutsideRange {
        path: usize,
        hop: usize,
        server: ServerId,
        first_block: u32,
        end: u64,
        held_first: u32,
        held_end: u64,
    },
    /// A path that stops before the end of the model.
    #[error("path {path}: it ends at block {end} of {blocks}")]
    Unfinished { path: usize, end: u64, blocks: u32 },
    /// More jobs than slots are reserved for.
    #[error("server {}: its paths need {needed} slots of {slots}", .server.0)]
    Slots { server: ServerId, needed: u128, slots: u32 },
}

/// Checks a plan against every rule. The cost is that of sorting the ranges and of looking each hop up among them.
///
/// # Errors
/// The first rule that is broken, in the order of the module's steps.
pub fn check(model: &Model, fleet: &Fleet, plan: &Plan) -> Result<(), Violation> {
    counts(model, fleet, plan)?;
    let mut held = ranges(model, fleet, plan)?;
    for (at, path) in plan.paths.iter().enumerate() {
        walk(model, &mut held, at, path)?;
    }
    for Held { range, needed } in held {
        if needed > u128::from(range.slots) {
            return Err(Violation::Slots { server: range.server, needed, slots: range.slots });
        }
    }
    Ok(())
}

/// A range, and the slots that paths need of it.
struct Held<'a> {
    range: &'a Range,
    needed: u128,
}

fn counts(model: &Model, fleet: &Fleet, plan: &Plan) -> Result<(), Violation> {
    if model.blocks == 0 {
        return Err(Violation::NoBlocks);
    }
    let servers = fleet.servers.len();
    if servers > SERVERS_MAX {
        return Err(Violation::Servers { found: servers, max: SERVERS_MAX });
    }
    for (server, next) in fleet.servers.iter().zip(fleet.servers.iter().skip(1)) {
        if next.id <= server.id {
            return Err(Violation::Order { server: next.id });
        }
    }
    if plan.ranges.len() > servers {
        return Err(Violation::Ranges { found: plan.ranges.len(), servers });
    }
    if !(1..=CHAINS_MAX).contains(&plan.paths.len()) {
        return Err(Violation::Paths { found: plan.paths.len(), max: CHAINS_MAX });
    }
    for (path, it) in plan.paths.iter().enumerate() {
        if !(1..=CHAIN_STAGES_MAX).contains(&it.hops.len()) {
            return Err(Violation::Hops { path, found: it.hops.len(), max: CHAIN_STAGES_MAX });
        }
        if !(1..=CHAIN_JOBS_MAX).contains(&(it.capacity as usize)) {
            return Err(Violation::Capacity { path, capacity: it.capacity, max: CHAIN_JOBS_MAX });
        }
    }
    Ok(())
}

/// The ranges, each right by itself, ascending by server and at most one for each.
fn ranges<'a>(model: &Model, fleet: &Fleet, plan: &'a Plan) -> Result<Vec<Held<'a>>, Violation> {
    for range in &plan.ranges {
        let &Range { server, blocks, slots, .. } = range;
        let Some(there) = fleet.server(server) else { return Err(Violation::UnknownServer { server }) };
        if there.state != Health::Ready {
            return Err(Violation::NotReady { server, state: there.state });
        }
        if blocks == 0 {
            return Err(Violation::EmptyRange { server });
        }
        let end = end(range.first_block, blocks);
        if end > u64::from(model.blocks) {
            return Err(Violation::OutsideModel { server, end, blocks: model.blocks });
        }
        let bytes = bytes(model, range);
        if bytes > u128::from(there.mem_bytes) {
            return Err(Violation::Memory { server, blocks, slots, bytes, mem_bytes: there.mem_bytes });
        }
    }
    let mut held: Vec<_> = plan.ranges.iter().map(|range| Held { range, needed: 0 }).collect();
    held.sort_by_key(|it| it.range.server);
    for (one, next) in held.iter().zip(held.iter().skip(1)) {
        if one.range.server == next.range.server {
            return Err(Violation::SecondRange { server: one.range.server });
        }
    }
    Ok(held)
}

/// What a range takes of its server's memory, with what belongs to the model's ends.
fn bytes(model: &Model, range: &Range) -> u128 {
    let times = |count: u32, bytes: u64| u128::from(count) * u128::from(bytes);
    let head = if range.first_block == 0 { model.head_bytes } else { 0 };
    let last = end(range.first_block, range.blocks) == u64::from(model.blocks);
    let tail = if last { model.tail_bytes } else { 0 };
    times(range.blocks, model.block_bytes) + times(range.slots, model.slot_bytes) + u128::from(head) + u128::from(tail)
}

/// Follows a path through the ranges, and notes the slots that it needs of each.
fn walk(model: &Model, held: &mut [Held<'_>], path: usize, it: &Path) -> Result<(), Violation> {
    let mut next = 0;
    for (hop, visit) in it.hops.iter().enumerate() {
        let (server, first_block) = (visit.server, visit.first_block);
        let found = held.binary_search_by_key(&server, |it| it.range.server).ok();
        let Some(there) = found.and_then(|at| held.get_mut(at)) else {
            return Err(Violation::NoRange { path, hop, server });
        };
        if visit.blocks == 0 {
            return Err(Violation::EmptyHop { path, hop, server });
        }
        if u64::from(first_block) != next {
            return Err(Violation::NotNext { path, hop, first_block, next });
        }
        let end_here = end(first_block, visit.blocks);
        let (held_first, held_end) = (there.range.first_block, end(there.range.first_block, there.range.blocks));
        if first_block < held_first || end_here > held_end {
            let end = end_here;
            return Err(Violation::OutsideRange { path, hop, server, first_block, end, held_first, held_end });
        }
        there.needed += u128::from(it.capacity) * u128::from(visit.blocks);
        next = end_here;
    }
    if next == u64::from(model.blocks) {
        Ok(())
    } else {
        Err(Violation::Unfinished { path, end: next, blocks: model.blocks })
    }
}

/// The first block behind these.
fn end(first_block: u32, blocks: u32) -> u64 {
    u64::from(first_block) + u64::from(blocks)
}
