//! The WebAssembly host for policies.
//!
//! A policy is a sandboxed component that decides; the runtime only ever takes its answers as advice. Its life, in the order of
//! the modules:
//!
//! 1. [`artifact`] takes an upload and makes a component of it; [`verify`] checks its imports, exports, version and sizes;
//! 2. `compile` makes machine code, `instance` runs it within [`limits`], one `call` at a time, in the shapes of its
//!    contract's version (`versions`) and with its log bounded (`journal`);
//! 3. `trial` asks it a few questions; [`host`] holds these steps together and hands out a [`Candidate`];
//! 4. [`slot`] puts the candidate in charge between two decisions, keeps the one before it, and answers for the policy when
//!    it faults; `breaker` pauses one that keeps faulting.
//!
//! Steps 1 to 3 run on any thread; the slot belongs to the engine's. Invariants: guest code runs only with fuel, a deadline and
//! a memory limit armed; the only import is `host.log`; an instance that has faulted is never called again; ejecting a policy
//! runs no guest code.

pub mod artifact;
pub mod verify;

mod compile;
mod instance;
pub mod limits;

mod call;
mod journal;
mod versions;

pub mod host;
pub mod refuse;
mod trial;

mod breaker;
pub mod slot;

pub use artifact::{Artifact, Digest};
pub use host::{Candidate, Descriptor, HostError, PolicyHost};
pub use refuse::{RefuseReason, Stage};
pub use slot::{NothingBefore, PolicyCard, Retired, RouteSlot, SlotReport, Status};
