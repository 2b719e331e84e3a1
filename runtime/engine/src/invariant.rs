//! What always holds, by name. The same predicates are asserted in here and used as checkers by tests and the simulator.
//!
//! The cheap ones are asserted after every input in every build, all of them in debug builds. They can only fail through a
//! mistake in this crate, never through a request, a policy or a device; going on would promise memory twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, Place};
use crate::ids::{BlockId, RequestId};
use crate::line::sequence::Phase;
use crate::yard::chains::Chain;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} does not hold: {detail}")]
pub struct Violation {
    /// Which invariant.
    pub name: &'static str,
    /// Where, and what is there instead.
    pub detail: String,
}

/// Checks every invariant; costs time in proportion to all blocks and requests.
///
/// # Errors
/// The first that does not hold.
pub fn check(engine: &Engine) -> Result<(), Violation> {
    check_cheap(engine)?;
    for chain in engine.chains.iter() {
        blocks_are_in_one_state(chain)?;
        cached_blocks_can_be_found_and_evicted(chain)?;
        blocks_to_write_are_private(chain)?;
        sequences_are_in_one_place(chain)?;
    }
    requests_are_in_one_place(engine)
}

pub(crate) fn assert_cheap(engine: &Engine) {
    let outcome = if cfg!(debug_assertions) { check(engine) } else { check_cheap(engine) };
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// Those whose cost does not grow with blocks or requests.
fn check_cheap(engine: &Engine) -> Result<(), Violation> {
    requests_end_once(engine)?;
    queue_is_bounded(engine)?;
    engine.chains.iter().try_for_each(jobs_are_bounded)
}

/// Accepted requests are the ended and the live ones: each has had exactly one terminal event, or will have.
fn requests_end_once(engine: &Engine) -> Result<(), Violation> {
    let stats = &engine.stats;
    let ended = stats.stopped_total + stats.length_total + stats.cancelled_total + stats.failed_total;
    let live = engine.places.len() as u64;
    ensure("requests_end_once", stats.accepted_total == ended + live, || {
        format!("{} accepted, {ended} ended, {live} live", stats.accepted_total)
    })
}

fn queue_is_bounded(engine: &Engine) -> Result<(), Violation> {
    let (len, max) = (engine.queue.len(), engine.queue.max());
    ensure("queue_is_bounded", len <= max, || format!("{len} wait in a queue of {max}"))
}

/// At most as many jobs as the chain may run, at most as many micro-batches as it has stages.
fn jobs_are_bounded(chain: &Chain) -> Result<(), Violation> {
    let (busy, pipeline) = (chain.line.busy(), chain.line.pipeline());
    let in_flight = pipeline.steps().count();
    ensure("jobs_are_bounded", busy <= chain.jobs_max && in_flight <= pipeline.stages(), || {
        format!("{:?} runs {busy} jobs and {in_flight} micro-batches", chain.id)
    })
}

/// Every block is free, idle or in use, exactly once; a block's holders are the tables that it is in; busy counts the
/// tables.
fn blocks_are_in_one_state(chain: &Chain) -> Result<(), Violation> {
    let kv = chain.line.kv();
    // How often each block is (free, idle, in a table).
    let mut found = vec![(0, 0, 0); kv.total_blocks() as usize];
    for block in kv.free_blocks() {
        found[block.0 as usize].0 += 1;
    }
    for (block, _) in kv.index().nodes().filter(|(_, node)| node.idle_since.is_some()) {
        found[block.0 as usize].1 += 1;
    }
    let mut tables = 0;
    for (_, sequence) in chain.line.sequences() {
        tables += 1;
        for block in sequence.table.blocks().iter() {
            found[block.0 as usize].2 += 1;
        }
    }
    let wrong = (0..).map(BlockId).zip(&found).find(|&(block, &(free, idle, used))| {
        let in_one_state = matches!((free, idle, used), (1, 0, 0) | (0, 1, 0) | (0, 0, 1..));
        !in_one_state || kv.holders(block) != used
    });
    let (busy, idle) = (chain.line.busy(), found.iter().map(|found| found.1).sum::<u32>());
    ensure("blocks_are_in_one_state", wrong.is_none() && busy == tables && kv.idle_blocks() == idle, || {
        let counts = format!("{busy} jobs, {tables} tables; {idle} blocks idle of {} counted", kv.idle_blocks());
        format!("{:?}: (free, idle, in a table) of a block is {wrong:?}; {counts}", chain.id)
    })
}

/// A cached block is found behind its parent, which is cached for the same tenant, is in use while it is, and was left no
/// earlier; the ends are exactly the idle blocks without children. So all idle blocks can be evicted, one after another.
fn cached_blocks_can_be_found_and_evicted(chain: &Chain) -> Result<(), Violation> {
    let index = chain.line.kv().index();
    let block_tokens = chain.line.kv().block_tokens();
    let mut parents = BTreeSet::new();
    let stray = index.nodes().find(|&(block, node)| {
        let full = node.tokens.len() == block_tokens as usize;
        let found = index.child(node.tenant, node.parent, &node.tokens) == Some(block);
        let follows = match node.parent {
            None => node.depth == block_tokens,
            Some(parent) => index.node(parent).is_some_and(|parent| {
                let held = parent.idle_since.is_none_or(|left| node.idle_since.is_some_and(|since| since <= left));
                parent.tenant == node.tenant && parent.depth + block_tokens == node.depth && held
            }),
        };
        parents.extend(node.parent);
        !(full && found && follows)
    });
    let stray = stray.map(|(block, _)| block);
    let idle = index.nodes().filter(|(block, node)| node.idle_since.is_some() && !parents.contains(block));
    let mut expected: Vec<_> = idle.map(|(block, node)| (node.idle_since, block)).collect();
    expected.sort_unstable();
    let ends_are_right = index.ends().eq(expected.iter().map(|&(_, block)| block));
    ensure("cached_blocks_can_be_found_and_evicted", stray.is_none() && ends_are_right, || {
        let ends: Vec<_> = index.ends().collect();
        format!("{:?}: stray block {stray:?}; ends are {ends:?}, expected {expected:?}", chain.id)
    })
}

/// A block that its sequence may still write is in no other table and can not be found.
fn blocks_to_write_are_private(chain: &Chain) -> Result<(), Violation> {
    let kv = chain.line.kv();
    let shared = chain.line.sequences().find_map(|(_, sequence)| {
        let settled = (sequence.computed() / kv.block_tokens()) as usize;
        let to_write = sequence.table.blocks().iter().skip(settled);
        let mut shared = to_write.filter(|&&block| kv.holders(block) != 1 || kv.index().node(block).is_some());
        shared.next().map(|&block| (sequence.id, block))
    });
    ensure("blocks_to_write_are_private", shared.is_none(), || {
        format!("{:?}: a request may write a block that others see: {shared:?}", chain.id)
    })
}

/// A sequence is either ready, exactly once, or in exactly one micro-batch.
fn sequences_are_in_one_place(chain: &Chain) -> Result<(), Violation> {
    let mut seen: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for slot in chain.line.ready() {
        seen.entry(slot).or_default().0 += 1;
    }
    for part in chain.line.pipeline().steps().flat_map(|step| &step.parts) {
        seen.entry(part.slot).or_default().1 += 1;
    }
    let expected: BTreeMap<u32, (u32, u32)> = chain
        .line
        .sequences()
        .map(|(slot, sequence)| (slot, if sequence.phase == Phase::Ready { (1, 0) } else { (0, 1) }))
        .collect();
    ensure("sequences_are_in_one_place", seen == expected, || {
        format!("{:?}: (ready, in flight) of each slot is {seen:?}, expected {expected:?}", chain.id)
    })
}

/// The live requests are exactly those in the queue and those on a chain, and each is where the engine thinks it is.
fn requests_are_in_one_place(engine: &Engine) -> Result<(), Violation> {
    let waiting = engine.queue.iter().map(|job| (job.id, Place::Queue));
    let running = engine.chains.iter().flat_map(|chain| {
        let live = chain.line.sequences().filter(|(_, sequence)| sequence.phase != Phase::Remnant);
        live.map(|(slot, sequence)| (sequence.id, Place::Chain(chain.id, slot)))
    });
    let mut found: Vec<(RequestId, Place)> = waiting.chain(running).collect();
    found.sort_unstable_by_key(|&(id, _)| id);
    let known: Vec<(RequestId, Place)> = engine.places.iter().map(|(&id, &place)| (id, place)).collect();
    ensure("requests_are_in_one_place", found == known, || format!("found {found:?}, expected {known:?}"))
}

fn ensure(name: &'static str, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { name, detail: detail() }) }
}
