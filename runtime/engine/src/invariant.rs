//! What always holds, by name. The same predicates are asserted in here and used as checkers by tests and the simulator.
//!
//! The cheap ones are asserted after every input in every build, all of them in debug builds. They can only fail through a
//! mistake in this crate, never through a request, a policy or a device; going on would promise memory twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, Place};
use crate::ids::RequestId;
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
        blocks_are_owned_once(chain)?;
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

/// Free and reserved blocks together are all blocks of the chain, each exactly once; busy counts the tables.
fn blocks_are_owned_once(chain: &Chain) -> Result<(), Violation> {
    let kv = chain.line.kv();
    let tables = || chain.line.sequences().map(|(_, sequence)| sequence.table.blocks());
    let reserved = tables().flat_map(|blocks| blocks.iter());
    let owned: Vec<u32> = kv.free_blocks().iter().chain(reserved).map(|block| block.0).collect();
    let distinct: BTreeSet<u32> = owned.iter().copied().filter(|&block| block < kv.total_blocks()).collect();
    let total = kv.total_blocks() as usize;
    let (busy, count) = (chain.line.busy() as usize, tables().count());
    ensure("blocks_are_owned_once", owned.len() == total && distinct.len() == total && busy == count, || {
        format!(
            "{:?}: {total} blocks, {} owned, {} distinct; {busy} jobs, {count} tables",
            chain.id,
            owned.len(),
            distinct.len()
        )
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
