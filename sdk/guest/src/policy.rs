//! What the policies of all slots have in common.

use std::fmt;

use crate::cluster::Cluster;

/// What every policy has, whichever slots it serves. Only `NAME`, `VERSION` and `init` must be written.
///
/// A policy implements this and the trait of each slot that it serves: [`crate::RoutePolicy`], [`crate::BatchPolicy`],
/// [`crate::CachePolicy`], [`crate::PlacePolicy`]. A component that serves several is started once for each.
pub trait Policy: Sized {
    /// The policy's name as operators see it, in kebab case.
    const NAME: &'static str;
    /// The policy's version; `env!("CARGO_PKG_VERSION")` as a rule.
    const VERSION: &'static str;
    /// Names the layout of the bytes of [`Self::save`]; empty when nothing is saved.
    const STATE_SCHEMA: &'static str = "";
    /// What the host must gather for this policy.
    const NEEDS: Inputs = Inputs { prefix_overlap: false, link_matrix: false };
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
    /// How much of a prompt each chain already holds, see [`crate::RoutePolicy::pick_affine`].
    pub prefix_overlap: bool,
    /// Round trips and bandwidths between servers, see [`crate::Fleet::links`].
    pub link_matrix: bool,
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
