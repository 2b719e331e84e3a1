//! The deterministic core: which request runs where and when, and what comes out of it.
//!
//! [`Engine`] is a pure state machine. Its driver hands it one input at a time (a request, a cancel, a finished
//! micro-batch, the passing of time) with the time of day as an argument, and carries out what it finds in the
//! [`output::Outbox`]: micro-batches to start and events to deliver. There is no I/O, clock, thread, device or guest code
//! in here; the same inputs give the same outputs, bit for bit, so the server, the simulator and the tests run this code.
//!
//! The modules, in the order in which a request meets them:
//!
//! 1. [`limits`], [`ids`], [`config`]: every maximum, the vocabulary of types, the shape of the machine.
//! 2. [`request`]: raw fields become a checked request. `admission`: may it enter at all?
//! 3. `yard`: chains and the central queue; `yard::dispatch` asks the policy where a request goes.
//! 4. [`snapshot`], [`decision`], [`port`], [`window`]: what a policy sees, what it may answer, how it is called. `desk` asks
//!    the slots that are asked with a window.
//! 5. `guard`: is the answer allowed? If not, [`builtin`] decides the same request in the same call.
//! 6. `line`: one chain at work: KV blocks and the prefix cache, sequences, micro-batches, what is in flight.
//! 7. [`sample`]: a row of logits becomes a token. [`output`], [`stats`]: events and figures.
//! 8. [`engine`] holds the state, `step` orders the phases of one turn, [`invariant`] names what always holds.
//! 9. [`placement`], which no request meets: can a plan be carried out that says which server holds which of the model's blocks?
//!
//! What always holds: a block is free, idle in the prefix cache, or in use, and nobody else can see a block that a sequence
//! may still write; a dispatched request has all the KV it can need reserved and is never preempted; a live request is in
//! exactly one place; every accepted request ends in exactly one [`output::Event::Done`]; every queue is bounded; a
//! request's tokens depend on the request and the model only.

#![forbid(unsafe_code)]
#![deny(clippy::iter_over_hash_type)]

pub mod limits;

pub mod ids;

pub mod config;

pub mod request;

mod admission;

mod yard;

pub mod snapshot;

pub mod decision;

pub mod port;

pub mod window;

mod desk;

mod guard;

pub mod builtin;

mod line;

pub mod random;

pub mod sample;

pub mod output;

pub mod stats;

pub mod engine;

mod step;

pub mod invariant;

pub mod placement;

pub use config::{ChainConfig, ConfigError, EngineConfig, Prefill};
pub use engine::Engine;
