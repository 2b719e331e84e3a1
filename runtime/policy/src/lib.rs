//! The WebAssembly host for policies.
//!
//! A policy is a sandboxed component that decides; the runtime only ever takes its answers as advice. Its life, in the order of
//! the modules:
//!
//! 0. [`kind`] names the slots;
//! 1. [`artifact`] takes an upload and makes a component of it; [`verify`] checks its imports, exports, version and sizes;
//! 2. `compile` makes machine code, or `cache` has it from an earlier process; `instance` runs it within [`limits`], one `call` at a time, in the shapes of its
//!    contract's version (`versions`) and with its log bounded (`journal`);
//! 3. [`trust`] says who may bring it; `trial` asks it a few questions; [`host`] holds these steps together and hands out a [`Candidate`];
//! 4. [`slot`] puts the candidate in charge, or on trial for a share of the requests, between two decisions, and keeps the one
//!    before it; it takes out one that keeps faulting (`strikes`) or is slower ([`slo`]), and [`quarantine`] remembers it;
//! 5. [`place`] asks placement policies and checks their plans;
//! 6. [`record`] keeps what was asked and answered; [`replay`] runs it again, through others, live as a shadow, or as an
//!    explanation; [`exam`] is what authors check their policies with.
//!
//! Steps 1 to 3 run on any thread; the slot belongs to the engine's; the log and its readers have their own. Invariants: guest
//! code runs only with fuel, a deadline and a memory limit armed; the only import is `host`, whose functions are outputs; an
//! instance that has faulted is never called again; taking a policy out runs no guest code.

pub mod kind;

pub mod artifact;
pub mod verify;

mod cache;
mod compile;
mod figures;
mod instance;
pub mod limits;

mod call;
mod journal;
mod versions;

pub mod host;
pub mod quarantine;
pub mod refuse;
mod trial;
pub mod trust;

pub mod place;

pub mod slo;
pub mod slot;
mod strikes;

pub mod record;
pub mod replay;

pub mod exam;

/// Versions of the contract that this host takes, oldest first.
pub const CONTRACTS: &[&str] = &[versions::v0_1::VERSION];

pub use artifact::{Artifact, Digest};
pub use figures::{Figure, FigureValue};
pub use host::{Candidate, Descriptor, HostError, PolicyHost};
pub use kind::SlotKind;
pub use quarantine::Quarantine;
pub use record::{DecisionLog, Tap};
pub use refuse::{RefuseReason, Stage};
pub use replay::shadow::Shadow;
pub use slot::{Guard, NotNow, Notice, PolicyCard, PolicySlot, Retired, SlotReport, Slots};
pub use trust::Trust;
