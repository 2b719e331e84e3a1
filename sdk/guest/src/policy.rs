//! The trait that a policy author implements.

use std::fmt;

use crate::cluster::Cluster;
use crate::event::Event;
use crate::route::{Candidate, Decision, Overlap, Pull, Request, Waiting};

/// A policy for the `route` slot. Only `init` and `pick` must be written.
///
/// Every call has a budget of fuel (about 100 µs of work for the hot ones); one that overruns it is ended, and the host
/// decides instead. `cluster` always has all events folded in. Keep `pick` and `pull` free of allocations.
pub trait RoutePolicy: Sized {
    /// The policy's name as operators see it, in kebab case.
    const NAME: &'static str;
    /// The policy's version; `env!("CARGO_PKG_VERSION")` as a rule.
    const VERSION: &'static str;
    /// Names the layout of the bytes of [`Self::save`]; empty when nothing is saved.
    const STATE_SCHEMA: &'static str = "";
    /// What the host must gather for this policy.
    const NEEDS: Inputs = Inputs { prefix_overlap: false };
    /// The figures that this policy keeps with [`crate::count`] and [`crate::gauge`].
    const METRICS: &'static [Metric] = &[];

    /// Makes the policy. `config` is the operator's JSON, empty for none.
    ///
    /// # Errors
    /// A setting that is unknown or out of range, or a cluster that the policy can not serve. The host then keeps the
    /// policy that it has and shows the message.
    fn init(config: &str, cluster: &Cluster) -> Result<Self, InitError>;

    /// Takes over what the outgoing policy saved. Called at most once, right after `init`. The bytes may come from any
    /// policy: check `schema`, distrust `bytes`, and leave the state as it is when in doubt.
    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        let _ = (schema, bytes);
    }

    /// Is told of one change; `cluster` has it already. For policies that keep indexes of their own.
    fn on_event(&mut self, event: Event, cluster: &Cluster) {
        let _ = (event, cluster);
    }

    /// Decides where a new request goes.
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision;

    /// As [`Self::pick`], asked instead of it when [`Self::NEEDS`] has `prefix_overlap`. `overlap` names the chains that hold
    /// the beginning of the prompt, ascending by id.
    fn pick_affine(&mut self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Decision {
        let _ = overlap;
        self.pick(ask, cluster)
    }

    /// The scores behind the decision that [`Self::pick`] (or [`Self::pick_affine`]) would take now; the lowest is the best.
    /// For people, never on the live path. Chains that are not named were not considered.
    fn trace(&self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let _ = (ask, overlap, cluster);
        Vec::new()
    }

    /// Chooses one of `waiting`, by index, for the room on `ask.chain`; `None` leaves the room empty for now. The default
    /// takes the first, in order of arrival, that fits.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        let chain = cluster.chain(ask.chain)?;
        waiting.iter().position(|request| chain.fits(request.reserve))
    }

    /// The state to hand to the next policy in this slot, laid out as [`Self::STATE_SCHEMA`] says.
    fn save(&self) -> Option<Vec<u8>> {
        None
    }

    /// The state for people, as JSON.
    fn dump(&self) -> String {
        "{}".to_owned()
    }
}

/// What the host gathers for a policy only if it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// How much of a prompt each chain already holds, see [`RoutePolicy::pick_affine`].
    pub prefix_overlap: bool,
}

/// How a figure behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; written with [`crate::count`].
    Counter,
    /// Goes up and down; written with [`crate::gauge`].
    Gauge,
}

/// One figure that a policy keeps in the host's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The policy's own number for it.
    pub id: u32,
    /// How it behaves.
    pub kind: MetricKind,
    /// Its name: lower case letters, digits and `_`.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
}

/// Why a policy can not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The configuration is wrong: what, and what is allowed.
    BadConfig(String),
    /// The configuration is right, but this policy can not serve this cluster.
    Unsupported(String),
    /// Anything else.
    Internal(String),
}

impl fmt::Display for InitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadConfig(why) => write!(out, "bad configuration: {why}"),
            Self::Unsupported(why) => write!(out, "unsupported: {why}"),
            Self::Internal(why) => write!(out, "internal: {why}"),
        }
    }
}

impl std::error::Error for InitError {}

/// What a policy handed over when it was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Names the layout of `bytes`.
    pub schema: String,
    /// The last event that the state knows of.
    pub seq: u64,
    /// The state.
    pub bytes: Vec<u8>,
}

/// Accepts only an empty configuration: for policies that have no settings.
///
/// # Errors
/// [`InitError::BadConfig`] for anything but white space or an empty JSON object.
pub fn no_knobs(config: &str) -> Result<(), InitError> {
    let mut rest = config.chars().filter(|c| !c.is_ascii_whitespace());
    match (rest.next(), rest.next(), rest.next()) {
        (None, ..) | (Some('{'), Some('}'), None) => Ok(()),
        _ => Err(InitError::BadConfig("this policy has no settings; leave its configuration empty or {}".to_owned())),
    }
}
