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

/// What is to be done with a policy.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Which one.
    pub source: PolicySource,
    /// Its configuration as JSON, empty for none.
    pub config: String,
    /// Who vouches for it: a text as `pointsman policy sign` makes it.
    pub signature: Option<String>,
    /// How far it may go.
    pub options: SwapOptions,
}

/// How far a policy may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// It decides about everything.
    Active,
    /// It decides about this share of the requests, in hundredths of a per cent, beside the one in charge.
    Trial(u32),
    /// It is asked everything and decides nothing.
    Shadow,
}

/// What may be chosen for a swap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwapOptions {
    /// How far it may go.
    pub mode: Mode,
    /// Whether it must first answer the newest recorded questions without a fault.
    pub rehearse: bool,
    /// Whether it is taken out after too many faults, or when it lets requests starve.
    pub guard_faults: bool,
    /// By how much it may be slower than the one beside it on trial, or otherwise than the one before it, as a fraction.
    pub slo_margin: f64,
    /// Requests after which a trial has passed.
    pub slo_requests: u32,
    /// Whether a policy that has passed its trial decides about everything from then on.
    pub promote: bool,
}

impl Default for SwapOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Active,
            rehearse: true,
            guard_faults: true,
            slo_margin: 1.0,
            slo_requests: 2_000,
            promote: false,
        }
    }
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

/// A policy that can be swapped in.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Available {
    /// Who it is.
    #[serde(flatten)]
    pub policy: PolicyInfo,
    /// The slots that it serves.
    #[serde(default)]
    pub slots: Vec<String>,
}

/// The state of one slot.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct SlotState {
    /// The slot's name, e.g. `route`.
    pub slot: String,
    /// Grows with every change of who decides.
    pub generation: u64,
    /// Who decides; none means the native builtin.
    pub active: Option<PolicyInfo>,
    /// Who a rollback would bring back; none means the builtin.
    pub previous: Option<PolicyInfo>,
    /// Faults of the active policy since it came in: class name and count, only those above zero.
    pub faults: Vec<(String, u64)>,
    /// The last fault of any policy in this slot, one line.
    pub last_fault: Option<String>,
    /// The policy that decides about a share of the requests.
    #[serde(default)]
    pub trial: Option<TrialState>,
    /// The policy that decides without effect.
    #[serde(default)]
    pub shadow: Option<ShadowState>,
    /// How the active policy compares with the time before it, while that is watched.
    #[serde(default)]
    pub watch: Option<WatchState>,
}

/// How a policy that came in lately compares with the requests before it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct WatchState {
    /// Requests that have ended since.
    pub requests: u32,
    /// Their time to first token, as a multiple of that before.
    pub ttft_ratio: f64,
    /// Their time per output token, as a multiple of that before.
    pub tpot_ratio: f64,
}

/// A trial that goes on.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct TrialState {
    /// Who is on trial.
    pub policy: PolicyInfo,
    /// Its share of the requests.
    pub percent: f64,
    /// As in [`SlotState`].
    pub faults: Vec<(String, u64)>,
    /// Requests that it decided about and that have ended.
    pub requests: u32,
    /// Its time to first token, as a multiple of the active policy's.
    pub ttft_ratio: f64,
    /// Its time per output token, as a multiple of the active policy's.
    pub tpot_ratio: f64,
}

/// A shadow at work.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct ShadowState {
    /// Who it is.
    pub policy: PolicyInfo,
    /// Questions that it was asked.
    pub decisions: u64,
    /// Answers that were those of the active policy.
    pub agreed: u64,
    /// Answers that could not have been carried out.
    pub invalid: u64,
    /// As in [`SlotState`].
    pub faults: Vec<(String, u64)>,
    /// Questions that it was not asked, because it was too slow or had no view.
    pub missed: u64,
    /// Fuel of a decision: on average, and at most.
    pub fuel: (u64, u64),
    /// Where both dispatched, but to different chains: by how many microseconds the smoothed service time of its chains was
    /// longer, on average.
    pub service_micros: f64,
    /// The last fault or invalid answer, one line.
    pub last_fault: Option<String>,
}

/// What can be swapped in by name, and who may not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyListing {
    /// All slots.
    pub slots: Vec<SlotState>,
    /// Policies that ship with the server or were uploaded.
    pub available: Vec<Available>,
    /// Digests that were taken out.
    #[serde(default)]
    pub quarantined: Vec<Quarantined>,
    /// Versions of the contract that this server takes.
    #[serde(default)]
    pub contracts: Vec<String>,
}

/// A digest that was taken out.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Quarantined {
    /// Which.
    pub digest: String,
    /// How often.
    pub strikes: u32,
    /// Why, the last time.
    pub reason: String,
    /// Seconds until it may come back, 0 if it may; none for not until it is cleared.
    pub seconds: Option<u64>,
}

/// One decision, explained.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct DecisionInfo {
    /// The engine's number of the request.
    pub request: u64,
    /// Number of the view that the policy had.
    pub seq: u64,
    /// When, in microseconds since the start.
    pub now_micros: u64,
    /// Tokens of the prompt, and tokens reserved.
    pub prompt_tokens: u32,
    /// As above.
    pub reserve_tokens: u32,
    /// The slot's generation.
    pub generation: u64,
    /// Who was asked; the digest is none for the builtin.
    pub policy: String,
    /// As above.
    pub digest: Option<String>,
    /// Whether that was a policy on trial.
    pub on_trial: bool,
    /// What was done: `chain 3`, `queue`, `reject 7`, `defer 500 us`.
    pub decision: String,
    /// Why the policy's answer was not used, if it was not: the class of the fault.
    pub fault: Option<String>,
    /// Fuel that the question took.
    pub fuel: u64,
    /// All chains as the policy saw them.
    pub candidates: Vec<CandidateInfo>,
    /// Why there are no scores, if asking for them failed.
    pub no_scores: Option<String>,
}

/// A chain in an explanation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct CandidateInfo {
    /// Its number.
    pub chain: u32,
    /// Jobs that ran on it, and how many may.
    pub busy: u32,
    /// As above.
    pub capacity: u32,
    /// Tokens that could be reserved.
    pub free_tokens: u32,
    /// Smoothed time of a whole job.
    pub service_micros: u64,
    /// Tokens of the prompt that it held already.
    pub cached_tokens: u32,
    /// Whether the request fitted.
    pub fits: bool,
    /// What it was worth to the policy, the lowest being the best; none if it was not considered.
    pub score: Option<f64>,
}

/// Something that an operator, or the server itself, did to a slot.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct AuditEntry {
    /// Unix time in seconds.
    pub time: u64,
    /// The slot; none for what concerns all of them.
    #[serde(default)]
    pub slot: Option<String>,
    /// `operator`, or `guard` for what the server did by itself.
    pub by: String,
    /// What was done.
    pub action: String,
    /// Who decided before, and after: a digest, or `builtin`.
    pub before: String,
    /// As above.
    pub after: String,
    /// Why, or why not.
    pub note: String,
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

/// Changes who decides, and tells how it was decided.
pub trait PolicyAdmin: Send + Sync + 'static {
    /// Slots, what could be put into them, and what may not.
    fn list(&self) -> PolicyListing;
    /// Verifies, compiles and tries a policy, then puts it into `slot` between two decisions. `expected` is the generation that
    /// the caller saw (`If-Match`), if it gave one.
    fn swap(&self, slot: String, swap: Swap, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Puts the policy on trial in charge of everything.
    fn promote(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Ends a trial, or else brings the previous policy back.
    fn rollback(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Lets the builtin decide; runs no guest code.
    fn eject(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Ends a shadow.
    fn end_shadow(&self, slot: String) -> BoxFuture<'_, Result<SlotState, SwapError>>;
    /// Lets a digest come back at once.
    ///
    /// # Errors
    /// It has no record.
    fn clear(&self, digest: &str) -> Result<(), SwapError>;
    /// Explains the decision about a request, by the engine's number.
    fn explain(&self, request: u64) -> BoxFuture<'_, Result<DecisionInfo, SwapError>>;
    /// The decision log as a file.
    fn log(&self, slot: String) -> BoxFuture<'_, Result<Vec<u8>, SwapError>>;
    /// The active policy's state for people, as it says.
    fn dump(&self, slot: String) -> BoxFuture<'_, Result<String, SwapError>>;
    /// What was done to the slots, oldest first.
    fn audit(&self) -> Vec<AuditEntry>;
}
