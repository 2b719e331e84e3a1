//! A policy that decides beside the live one without effect: a [`Rival`] on the frames as they are recorded, on its own thread.
//!
//! The live path does nothing more than recording, which it does anyway. A shadow that is too slow misses batches, which its
//! report says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::rival::{Rival, RivalReport};
use crate::artifact::Digest;
use crate::host::{Candidate, Descriptor};
use crate::record::frame::{Frame, split};
use crate::record::{Batch, DecisionLog};

/// How long a shadow waits for frames before it looks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

struct Shared {
    stop: AtomicBool,
    report: Mutex<RivalReport>,
}

/// A running shadow. It ends when dropped, or when another one starts on the same log.
pub struct Shadow {
    /// What the policy says of itself.
    pub descriptor: Descriptor,
    /// Its digest.
    pub digest: Digest,
    shared: Arc<Shared>,
}

impl Shadow {
    /// Starts following the log. The slot should be started afresh after this, so that the shadow has a view at once.
    ///
    /// # Errors
    /// The thread can not be started.
    pub fn start(log: &DecisionLog, candidate: Candidate) -> io::Result<Self> {
        let policy = candidate.policy;
        let (descriptor, digest) = (policy.descriptor().clone(), policy.digest());
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), report: Mutex::default() });
        let (batches, told) = (log.subscribe(), Arc::clone(&shared));
        thread::Builder::new().name("shadow".into()).spawn(move || follow(&batches, Rival::new(policy), &told))?;
        Ok(Self { descriptor, digest, shared })
    }

    /// How it compares so far.
    #[must_use]
    pub fn report(&self) -> RivalReport {
        self.shared.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn follow(batches: &Receiver<Batch>, mut rival: Rival, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let batch = match batches.recv_timeout(PATIENCE) {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        split(&batch).filter_map(|frame| Frame::decode(frame).ok()).for_each(|frame| rival.step(&frame));
        // Settled without waiting for the next frame: what replaces a decision comes in the same batch as a rule.
        rival.settle();
        *shared.report.lock().unwrap_or_else(PoisonError::into_inner) = rival.report().clone();
    }
}
