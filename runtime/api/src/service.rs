//! What the HTTP layer asks of the rest of the process. Implemented by the application's wiring, by fakes in tests.
//!
//! [`Service`] runs requests; [`PolicyAdmin`] changes who decides about them. Dropping a [`Submission`] cancels it.

use std::future::Future;
use std::pin::Pin;

use pointsman_engine::ids::RequestId;
use pointsman_engine::output::Event;
use pointsman_engine::request::{ModelLimits, Reject, Request};
use pointsman_engine::stats::Stats;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// A boxed future, so that the traits can be used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The model that is served.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// Served name, as listed by `/v1/models`.
    pub id: String,
    /// Unix time of loading, in seconds.
    pub created: u64,
    /// Context and vocabulary.
    pub limits: ModelLimits,
}

/// An accepted request. The channel holds as many events as the request can produce, so its sender never waits.
pub struct Submission {
    /// The engine's id.
    pub id: RequestId,
    /// Its events, ending in exactly one `Done`.
    pub events: mpsc::Receiver<Event>,
    /// Cancels the request when dropped before `Done`; cancelling a request that has ended is harmless.
    pub cancel: CancelOnDrop,
}

/// Runs its closure once, when dropped.
pub struct CancelOnDrop(Option<Box<dyn FnOnce() + Send>>);

impl CancelOnDrop {
    /// `cancel` is called when this is dropped.
    pub fn new(cancel: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(cancel)))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

/// Whether the server takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The model is being loaded.
    Loading,
    /// Requests are taken.
    Ready,
    /// Running requests finish, new ones are refused.
    Draining,
}

/// Runs requests.
pub trait Service: Send + Sync + 'static {
    /// Whether requests are taken. Must not wait for anything.
    fn readiness(&self) -> Readiness;
    /// Hands a checked request to the engine and waits for its answer (accepted or refused), so that a refusal becomes a
    /// real HTTP status before the first byte of a stream.
    fn submit(&self, request: Request) -> BoxFuture<'_, Result<Submission, Reject>>;
    /// A recent copy of the engine's figures. Must not wait for the engine.
    fn stats(&self) -> Stats;
    /// Extra lines for `/metrics` in Prometheus text, each family complete; e.g. information about device and policy.
    fn extra_metrics(&self) -> String;
}

/// Where a policy comes from.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// One that ships with the server, or was uploaded before: a name or `sha256:` digest.
    Name(String),
    /// A component (or core module with embedded WIT), as bytes.
    Bytes(Vec<u8>),
}

/// A policy, for people.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
}

/// The state of one slot.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct SlotState {
    /// The slot's name, e.g. `route`.
    pub slot: String,
    /// Grows with every swap, rollback and removal.
    pub generation: u64,
    /// Who decides; none means the native builtin.
    pub active: Option<PolicyInfo>,
    /// Who a rollback would bring back; none means the builtin.
    pub previous: Option<PolicyInfo>,
    /// `active`, `paused` (after repeated faults the builtin decides for a while) or `builtin`.
    pub status: String,
    /// Faults of the active policy since it was swapped in: class name and count, only those above zero.
    pub faults: Vec<(String, u64)>,
    /// The last fault of any policy in this slot, one line.
    pub last_fault: Option<String>,
}

/// What can be swapped in by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyListing {
    /// All slots.
    pub slots: Vec<SlotState>,
    /// Policies that ship with the server or were uploaded.
    pub available: Vec<PolicyInfo>,
}

/// Why a swap did not happen. The active policy is untouched.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SwapError {
    /// No such slot, policy or earlier policy.
    #[error("{0}")]
    NotFound(String),
    /// The policy was refused; what stage and why.
    #[error("{0}")]
    Refused(String),
    /// The slot's generation is not the expected one.
    #[error("the slot is at generation {0} now; read it again and repeat")]
    Conflict(u64),
    /// The server can not swap now (draining, or too many swaps at once).
    #[error("{0}")]
    Unavailable(String),
}

/// Changes who decides.
pub trait PolicyAdmin: Send + Sync + 'static {
    /// Slots and what could be put into them.
    fn list(&self) -> PolicyListing;
    /// Verifies, compiles and tries `source`, then swaps it into `slot` between two decisions. `config` is the policy's
    /// JSON, empty for none. `expected` is the generation that the caller saw (`If-Match`), if it gave one.
    fn swap(
        &self,
        slot: String,
        source: PolicySource,
        config: String,
        expected: Option<u64>,
    ) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Brings the previous policy back.
    fn rollback(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Lets the builtin decide; runs no guest code.
    fn eject(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
}
