//! The decision log: what every policy was asked and what it answered, bounded, and chained by hashes.
//!
//! 1. The slot writes [`frame`]s through its [`Tap`], on the engine's thread; a full batch goes to the recorder's thread. If that
//!    can not keep up, the batch is dropped, and the gap is noted in the log: deciding never waits for recording.
//! 2. The recorder hashes each frame together with the hash before it, and keeps the newest chunks.
//! 3. [`DecisionLog`] reads: one decision, or the whole log as a file that [`crate::replay`] takes; and it passes the frames on to
//!    a shadow as they come.
//!
//! Invariant: every chunk begins with a start of arm 0, so that it can be replayed by itself.

pub mod frame;
mod ring;

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use crate::limits::{RECORD_BATCH_WORDS, RECORD_BATCHES_MAX, RECORD_CHUNK_WORDS};
use frame::{Frame, Writer};
use ring::Ring;
pub use ring::{Damage, LogFile};

/// Frames on their way: whole ones, without hashes.
pub(crate) type Batch = Arc<[u64]>;

enum Message {
    Batch(Batch),
    /// Answered when all before it has been kept.
    Sync(SyncSender<()>),
}

/// The slot's end of the log. Without a recorder it drops what it is given.
#[derive(Default)]
pub struct Tap {
    recorder: Option<SyncSender<Message>>,
    words: Vec<u64>,
    /// Words since the last start of arm 0.
    since_start: usize,
    lost: u64,
    frames: u64,
    overdue: bool,
}

impl Tap {
    pub(crate) fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// Writes one frame.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.recorder.is_none() {
            return;
        }
        let before = self.words.len();
        write(&mut Writer(&mut self.words));
        let head = self.words[before];
        self.since_start = if frame::starts_chunk(head) { 0 } else { self.since_start };
        self.since_start += self.words.len() - before;
        self.frames += 1;
        if self.words.len() >= RECORD_BATCH_WORDS {
            self.flush();
        }
    }

    /// Whether the policies should be started afresh, so that a new chunk of the log can begin. True once after a gap, and once
    /// whenever a chunk is full.
    pub(crate) fn wants_start(&mut self) -> bool {
        std::mem::take(&mut self.overdue) || {
            let full = self.since_start >= RECORD_CHUNK_WORDS;
            if full {
                self.since_start = 0;
            }
            full
        }
    }

    /// Hands over what has been collected.
    pub fn flush(&mut self) {
        let Some(recorder) = self.recorder.as_ref().filter(|_| !self.words.is_empty()) else { return };
        let frames = std::mem::take(&mut self.frames);
        match recorder.try_send(Message::Batch(self.words.as_slice().into())) {
            Ok(()) => self.words.clear(),
            Err(TrySendError::Full(_)) => {
                self.lost += frames;
                self.words.clear();
                let lost = self.lost;
                Writer(&mut self.words).lost(lost);
                (self.frames, self.overdue) = (0, true);
                return;
            }
            Err(TrySendError::Disconnected(_)) => self.recorder = None,
        }
        self.lost = 0;
    }
}

struct Shared {
    ring: Ring,
    shadow: Option<SyncSender<Batch>>,
}

/// The log's readers.
#[derive(Clone)]
pub struct DecisionLog {
    shared: Arc<Mutex<Shared>>,
    sender: SyncSender<Message>,
}

impl DecisionLog {
    /// Starts the recorder's thread, which ends with the last tap and reader. At most `bytes_max` are kept, see
    /// [`crate::limits::RECORD_BYTES_MAX`], though never less than one chunk.
    ///
    /// # Errors
    /// The thread can not be started.
    pub fn start(bytes_max: usize) -> io::Result<(Tap, Self)> {
        let (sender, receiver) = sync_channel(RECORD_BATCHES_MAX);
        let shared = Arc::new(Mutex::new(Shared { ring: Ring::new(bytes_max), shadow: None }));
        let tap = Tap { recorder: Some(sender.clone()), ..Tap::default() };
        let kept = Arc::clone(&shared);
        thread::Builder::new().name("recorder".into()).spawn(move || record(&receiver, &kept))?;
        Ok((tap, Self { shared, sender }))
    }

    /// Waits until all that the tap has flushed by now is in the log.
    pub fn sync(&self) {
        let (reply, done) = sync_channel(1);
        if self.sender.send(Message::Sync(reply)).is_ok() {
            let _ = done.recv();
        }
    }

    /// The whole log as a file.
    #[must_use]
    pub fn export(&self) -> LogFile {
        self.lock().ring.export()
    }

    /// Decisions that are in the log, and those that were dropped for want of time since the start.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let shared = self.lock();
        (shared.ring.frames_total(), shared.ring.lost_total())
    }

    /// The part of the log from which the newest decision about a request can be replayed: one chunk up to and including it.
    #[must_use]
    pub fn find(&self, request: u64) -> Option<Vec<u64>> {
        self.lock().ring.find(request)
    }

    /// The newest part of the log, for a rehearsal: from the last place but one at which it can be begun.
    #[must_use]
    pub fn newest(&self) -> Vec<Frame> {
        self.lock().ring.newest()
    }

    /// Passes every batch on from now on, in place of whoever was subscribed before. A subscriber that can not keep up misses
    /// batches and is told so by a frame.
    pub(crate) fn subscribe(&self) -> Receiver<Batch> {
        let (sender, receiver) = sync_channel(RECORD_BATCHES_MAX);
        self.lock().shadow = Some(sender);
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(messages: &Receiver<Message>, shared: &Mutex<Shared>) {
    let mut missed = 0_u64;
    while let Ok(message) = messages.recv() {
        let batch = match message {
            Message::Batch(batch) => batch,
            Message::Sync(reply) => {
                let _ = reply.send(());
                continue;
            }
        };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.ring.append(&batch);
        let Some(shadow) = &shared.shadow else { continue };
        let batch = if missed == 0 {
            batch
        } else {
            let mut words = Vec::with_capacity(batch.len() + 2);
            Writer(&mut words).lost(missed);
            words.extend_from_slice(&batch);
            words.into()
        };
        match shadow.try_send(batch) {
            Ok(()) => missed = 0,
            Err(TrySendError::Full(_)) => missed += 1,
            Err(TrySendError::Disconnected(_)) => (shared.shadow, missed) = (None, 0),
        }
    }
}
