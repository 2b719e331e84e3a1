//! Every maximum of the engine, with its unit in its name.

/// Waiting requests that `route.pull` sees at once.
pub const PULL_WINDOW_MAX: usize = 64;
/// Ends of idle chains that are offered for eviction at once.
pub const EVICT_WINDOW_MAX: usize = 64;
/// Questions about evictions for one request; what is still short then is the builtin's to find.
pub const EVICT_QUESTIONS_MAX: usize = 16;
/// Requests in the central queue.
pub const QUEUE_REQUESTS_MAX: usize = 256;
/// Shortest time after which a deferred request is asked about again, so that a policy can not make the driver spin.
pub const DEFER_MICROS_MIN: u64 = 1_000;
/// Longest time a policy may put a request off before it is asked again.
pub const DEFER_MICROS_MAX: u64 = 1_000_000;
/// A request that fits and has waited this long is dispatched by the builtin, whatever the policy says.
pub const STARVATION_MICROS: u64 = 5_000_000;
/// Micro-batches in a row in which a sequence that is ready may be passed over in favour of others.
pub const PASSED_MAX: u32 = 64;
/// Alternatives that log-probs may report for a token.
pub const LOGPROBS_MAX: u32 = 20;
/// Entries of a logit bias.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Stop tokens of one request.
pub const STOP_TOKENS_MAX: usize = 64;
/// Chains of one engine.
pub const CHAINS_MAX: usize = 512;
/// Sequences that run on one chain at once.
pub const CHAIN_JOBS_MAX: usize = 256;
/// Stages of one chain, and so micro-batches in flight on it.
pub const CHAIN_STAGES_MAX: usize = 64;
/// Tokens of one KV block.
pub const BLOCK_TOKENS_MAX: u32 = 1024;
/// Servers of one fleet. A placement plan has at most one range for each.
pub const SERVERS_MAX: usize = 512;
/// Prompt tokens in one micro-batch.
pub const PREFILL_TOKENS_MAX: u32 = 65_536;

const _: () = {
    assert!(PULL_WINDOW_MAX <= QUEUE_REQUESTS_MAX);
    assert!(DEFER_MICROS_MIN < DEFER_MICROS_MAX);
    // A policy that defers is asked several times before the builtin steps in.
    assert!(DEFER_MICROS_MAX < STARVATION_MICROS);
    // A path through all stages of a chain can visit each on a server of its own.
    assert!(CHAIN_STAGES_MAX <= SERVERS_MAX);
};
