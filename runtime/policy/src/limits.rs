//! Every maximum that a policy meets, with its unit in its name and the reason for its size.
//!
//! Fuel is the budget: it counts the guest's own operations, so a call ends at the same point on every machine and in every
//! replay. One unit costs about 0.04 to 0.11 ns in ordinary code, and 1 ns in a loop that does nothing. The epoch ticker is the
//! backstop for what fuel does not see.

use std::time::Duration;

/// An uploaded file. The policies that ship are 2 to 30 KiB; compiling takes about 1.5 ms for each KiB.
pub const UPLOAD_BYTES_MAX: usize = 1 << 20;
/// Code of one function. Compile time grows faster than linearly with it; a policy's largest is a few KiB.
pub const FUNCTION_BYTES_MAX: usize = 128 << 10;
/// Definitions of a component outside its core modules: types, imports, exports, aliases, instances. A policy has about 3 KiB.
/// Parsers and the compiler recurse over them, one level for at least three bytes.
pub const DEFINITION_BYTES_MAX: usize = 16 << 10;
/// Core modules and components inside a component. Component encoding makes six.
pub const PARTS_MAX: usize = 64;
/// Native stack for parsing and compiling an upload: four times what the deepest nesting that [`DEFINITION_BYTES_MAX`] allows
/// was seen to take. Only what is used is ever backed by memory.
pub const DOOR_STACK_BYTES: usize = 64 << 20;
/// The operator's configuration of one policy.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Linear memory of one instance. A Rust guest starts with 1.1 MiB, most of it shadow stack.
pub const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Linear memory of an instance for the slot `place`, which works on whole fleets.
pub const PLACE_MEMORY_BYTES_MAX: usize = 256 << 20;
/// Linear memories of one instance.
pub const MEMORIES_MAX: usize = 1;
/// Elements of one table.
pub const TABLE_ELEMENTS_MAX: usize = 10_000;
/// Tables of one instance: the guest's own and the shim's that component encoding adds, with room for one more pair.
pub const TABLES_MAX: usize = 4;
/// Core instances in one component instance: guest, shim and fix-up modules.
pub const CORE_INSTANCES_MAX: usize = 8;
/// Native stack that guest code may use; the caller's thread must have much more than this.
pub const STACK_BYTES_MAX: usize = 256 << 10;
/// Data that the guest hands to the host in one call: a result (also what `save` returns) or a log message.
pub const RESULT_BYTES_MAX: usize = 64 << 10;
/// The same for a placement plan: a fleet of 512 servers takes 30 KiB for the ranges and as much for each 100 paths of 20 hops.
pub const PLACE_RESULT_BYTES_MAX: usize = 4 << 20;
/// Name, version and state schema in a descriptor, each.
pub const LABEL_BYTES_MAX: usize = 64;
/// Compiled code of one policy in a file: about ten times the component.
pub const CACHED_BYTES_MAX: u64 = 64 << 20;
/// Requests that are remembered because the builtin decided them during a trial.
pub const REPLACED_MAX: usize = 4096;
/// Counters and gauges of one policy.
pub const FIGURES_MAX: usize = 16;
/// Compiled policies that are kept for the next upload of the same bytes.
pub const COMPILED_MAX: usize = 32;

/// Fuel of instantiation, `describe`, `init` and `save`: 1 to 2 ms of ordinary code. `init` and `save` run between two decisions of the live engine.
pub const COLD_FUEL: u64 = 20_000_000;
/// Fuel of `apply`, `pick`, `pull`, `step`, `victims` and `format`: 8 to 22 µs, plus [`FUEL_PER_WORD`]. A scan of 512 chains takes 10,000 units.
pub const HOT_FUEL: u64 = 200_000;
/// Fuel of `propose`: about 2 s of ordinary code, off the engine's thread.
pub const PLACE_FUEL: u64 = 20_000_000_000;
/// Added to [`HOT_FUEL`] for each word that a call hands over.
pub const FUEL_PER_WORD: u64 = 500;

/// Period of the epoch ticker.
pub const TICK: Duration = Duration::from_millis(10);
/// Ticks after which any call is ended. Generous, because a thread can lose the processor in the middle of a call for a tenth of
/// a second through no fault of the policy; fuel has ended a runaway long before.
pub const DEADLINE_TICKS: u64 = 200;

/// Ticks for `propose`: three times what its fuel buys of ordinary code. An empty loop, which costs more time a unit, ends by this.
pub const PLACE_DEADLINE_TICKS: u64 = 600;

/// Fuel that `host.log` costs, plus [`LOG_FUEL_PER_BYTE`]: what the host's own work takes, outside the quota, too.
pub const LOG_FUEL: u64 = 10_000;
/// Fuel for each byte of a message.
pub const LOG_FUEL_PER_BYTE: u64 = 10;
/// Fuel that `host.count` and `host.gauge` cost: about what calling the host takes.
pub const FIGURE_FUEL: u64 = 1_000;
/// A log line, in bytes; the rest is cut off.
pub const LOG_LINE_BYTES_MAX: usize = 1 << 10;
/// Log lines that a policy may write at once.
pub const LOG_LINES_BURST: u32 = 64;
/// Calls after which one more log line is allowed.
pub const LOG_REFILL_CALLS: u32 = 16;

/// The decision log of one slot in memory, all chunks together.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Recorded words after which the policy is started afresh from a snapshot, so that a replay can begin there and the oldest
/// part of the log can be forgotten: about 8,000 decisions of routing, or 1,000 micro-batches of 32 sequences.
pub const RECORD_CHUNK_WORDS: usize = 256 << 10;
/// Recorded words that the engine's thread collects before it hands them over.
pub const RECORD_BATCH_WORDS: usize = 1 << 10;
/// Batches that may wait for the recorder, and for a shadow; more are dropped, and the gap is noted.
pub const RECORD_BATCHES_MAX: usize = 256;

/// Requests before a swap, and after it, whose times are compared.
pub const WATCH_REQUESTS_MAX: usize = 512;

/// Requests before a swap without which it is not watched: no verdict could come of fewer.
pub const WATCH_REQUESTS_MIN: usize = 64;

/// Faults in a row after which a policy is taken out.
pub const STRIKES_MAX: u32 = 3;
/// Good answers that make up for one fault: a policy that faults more often than that in the long run is taken out, too.
pub const ANSWERS_PER_STRIKE: u32 = 10;
/// How long a digest must stay out after its first removal; each further one doubles it.
pub const QUARANTINE_PAUSE: Duration = Duration::from_secs(30);
/// Removals after which a digest may not come back until an operator clears it.
pub const QUARANTINE_STRIKES: u32 = 3;
/// Digests with a record.
pub const QUARANTINED_MAX: usize = 1024;

const _: () = assert!(
    PLACE_MEMORY_BYTES_MAX.is_multiple_of(64 << 10) && MEMORY_BYTES_MAX.is_multiple_of(64 << 10),
    "linear memory grows in pages of 64 KiB"
);
const _: () = assert!(RECORD_BATCH_WORDS < RECORD_CHUNK_WORDS);
const _: () = assert!(LOG_LINE_BYTES_MAX <= RESULT_BYTES_MAX);
