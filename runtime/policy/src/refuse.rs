//! Why an upload did not become a policy: at which stage, and what to do about it.

use std::{fmt, thread};

use crate::limits::DOOR_STACK_BYTES;

/// The steps between an upload and a candidate, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Shape, size, imports, exports, version; before anything is compiled.
    Verify,
    /// Who signed it, where that counts.
    Trust,
    /// It misbehaved earlier and may not come back yet.
    Quarantine,
    /// Machine code.
    Compile,
    /// The first instance, within its limits.
    Instantiate,
    /// The policy's account of itself.
    Describe,
    /// `init` with the operator's configuration and a small made-up view.
    Init,
    /// One `apply`, `pick` and `pull` on that view.
    Trial,
    /// Recorded questions of the live server.
    Rehearsal,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verify => "verify",
            Self::Trust => "trust",
            Self::Quarantine => "quarantine",
            Self::Compile => "compile",
            Self::Instantiate => "instantiate",
            Self::Describe => "describe",
            Self::Init => "init",
            Self::Trial => "trial",
            Self::Rehearsal => "rehearsal",
        })
    }
}

/// A refused policy; whoever is active is untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused at {stage}: {reason}")]
pub struct RefuseReason {
    /// How far it came.
    pub stage: Stage,
    /// What was wrong, in one line.
    pub reason: String,
}

impl RefuseReason {
    pub(crate) fn at(stage: Stage, reason: impl fmt::Display) -> Self {
        Self { stage, reason: reason.to_string() }
    }
}

/// Runs a parser or compiler over hostile bytes, on a thread with a large stack. A panic in it costs the upload, not the server;
/// `step` must not leave shared state half changed.
pub(crate) fn contain<T: Send>(
    stage: Stage,
    step: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, RefuseReason> {
    let outcome = thread::scope(|scope| {
        let door = thread::Builder::new().name("policy-door".into()).stack_size(DOOR_STACK_BYTES);
        match door.spawn_scoped(scope, step).map(thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err("the bytes made the compiler panic".into()),
            Err(e) => Err(format!("no thread could be started: {e}")),
        }
    });
    outcome.map_err(|reason| RefuseReason::at(stage, reason))
}
