//! The records that cross the border, in the shapes of the contract.

use pointsman_engine::snapshot::Snapshot;
use wasmtime::component::{ComponentType, Lift, Lower};

use crate::journal::Level;

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(super) struct Chain {
    id: u32,
    capacity: u32,
    busy: u32,
    #[component(name = "free-tokens")]
    free_tokens: u32,
    open: bool,
    service: u64,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct Cluster {
    epoch: u64,
    seq: u64,
    chains: Vec<Chain>,
    queued: u32,
}

impl From<&Snapshot> for Cluster {
    fn from(snapshot: &Snapshot) -> Self {
        let chains = snapshot.chains.iter().map(|chain| Chain {
            id: chain.id.0,
            capacity: chain.capacity,
            busy: chain.busy,
            free_tokens: chain.free_tokens,
            open: chain.open,
            service: chain.service.0,
        });
        Self { epoch: snapshot.epoch, seq: snapshot.seq, chains: chains.collect(), queued: snapshot.queued }
    }
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum Failure {
    #[component(name = "bad-config")]
    BadConfig(String),
    #[component(name = "unsupported")]
    Unsupported(String),
    #[component(name = "internal")]
    Internal(String),
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::BadConfig(why) => format!("bad configuration: {why}"),
            Failure::Unsupported(why) => format!("unsupported: {why}"),
            Failure::Internal(why) => format!("internal: {why}"),
        }
    }
}

/// What `describe` answers, not yet checked.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawDescriptor {
    pub(crate) name: String,
    pub(crate) version: String,
    #[component(name = "state-schema")]
    pub(crate) state_schema: String,
    pub(crate) needs: Inputs,
    pub(crate) metrics: Vec<RawMetric>,
}

// What a policy asks the host to gather for it.
wasmtime::component::flags! {
    Inputs {
        #[component(name = "prefix-overlap")]
        const PREFIX_OVERLAP;
        #[component(name = "link-matrix")]
        const LINK_MATRIX;
    }
}

/// A figure that a policy wants to keep, not yet checked.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawMetric {
    pub(crate) id: u32,
    pub(crate) kind: RawMetricKind,
    pub(crate) name: String,
    pub(crate) help: String,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[cfg_attr(not(test), expect(dead_code, reason = "made by lifting only"))]
pub(crate) enum RawMetricKind {
    #[component(name = "counter")]
    Counter,
    #[component(name = "gauge")]
    Gauge,
}

/// What a chain was worth to a policy in one decision, as it says; the lowest score is the best.
#[derive(Clone, Copy, Debug, PartialEq, ComponentType, Lift)]
#[component(record)]
pub struct Score {
    /// The chain's id, unchecked.
    pub chain: u32,
    /// Any number at all.
    pub score: f64,
}

/// A policy's state for its successor. The host never looks into it.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Saved {
    pub(crate) schema: String,
    pub(crate) seq: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by lifting only")]
pub(super) enum RawLevel {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl From<RawLevel> for Level {
    fn from(level: RawLevel) -> Self {
        match level {
            RawLevel::Debug => Self::Debug,
            RawLevel::Info => Self::Info,
            RawLevel::Warn => Self::Warn,
            RawLevel::Error => Self::Error,
        }
    }
}
