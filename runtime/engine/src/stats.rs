//! Counters and gauges of the engine, copied out for metrics and the operator's view.

use crate::decision::FaultClass;

/// One chain's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainStats {
    /// Sequences that run.
    pub busy: u32,
    /// Sequences that may run at once.
    pub capacity: u32,
    /// KV blocks reserved for sequences.
    pub kv_blocks_used: u32,
    /// KV blocks that only the prefix cache holds; they are given up when they are needed.
    pub kv_blocks_idle: u32,
    /// KV blocks in all.
    pub kv_blocks_total: u32,
    /// Micro-batches completed.
    pub steps_total: u64,
    /// Tokens run through the stages, prompt and generated.
    pub tokens_total: u64,
    /// Requests dispatched to it.
    pub dispatched_total: u64,
}

/// The figures of the `batch` or the `cache` slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStats {
    /// Questions asked.
    pub decisions_total: u64,
    /// Those that the builtin answered in a policy's place, by class, in the order of [`FaultClass::ALL`]; and sequences that ran
    /// although they were to be held back, under the class of a stall.
    pub fallbacks_total: [u64; FaultClass::ALL.len()],
}

/// The engine's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that run on a chain.
    pub running: u32,
    /// Requests in the central queue.
    pub waiting: u32,
    /// Requests accepted.
    pub accepted_total: u64,
    /// Requests refused at submission, for whatever reason.
    pub rejected_total: u64,
    /// Ended by a stop token.
    pub stopped_total: u64,
    /// Ended by length.
    pub length_total: u64,
    /// Cancelled by the caller.
    pub cancelled_total: u64,
    /// Failed on a device, or refused by a policy after queueing.
    pub failed_total: u64,
    /// Prompt tokens of accepted requests.
    pub prompt_tokens_total: u64,
    /// Tokens generated.
    pub generated_tokens_total: u64,
    /// Prompt tokens of dispatched requests that were looked up in the prefix cache.
    pub prefix_queries_tokens_total: u64,
    /// Those of them that were found, and not run.
    pub prefix_hits_tokens_total: u64,
    /// Blocks that the prefix cache gave up because others needed them.
    pub prefix_evicted_blocks_total: u64,
    /// The `batch` slot's figures.
    pub batch: SlotStats,
    /// The `cache` slot's figures.
    pub cache: SlotStats,
    /// Sequences that the engine ran because they had been passed over in too many micro-batches.
    pub passed_over_total: u64,
    /// Decisions asked of the route slot.
    pub decisions_total: u64,
    /// Decisions that the builtin made in a policy's place, by class, in the order of [`FaultClass::ALL`].
    pub fallbacks_total: [u64; FaultClass::ALL.len()],
    /// Requests that the builtin dispatched because they had waited too long.
    pub starved_total: u64,
    /// Step results that answered no micro-batch in flight, and were ignored.
    pub stale_results_total: u64,
    /// All chains, by id.
    pub chains: Vec<ChainStats>,
}
