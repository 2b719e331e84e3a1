//! What travels between the stages of a chain, and how a stage waits for it.
//!
//! A chain owns as many packets as it has stages. Each goes round: filled by `launch`, run by stage after stage, emptied
//! by the last one, and back to the free list. Every channel here has room for all of them, so that a send never waits.

use std::hint;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use pointsman_tensor::backend::Backend;

use crate::batch::Batch;

/// How long a stage looks for work before it sleeps: long enough to bridge the engine's turn between two steps of a single
/// stream on a fast device, short enough that an idle server uses no processor.
const SPIN: Duration = Duration::from_micros(40);
/// Looks between two readings of the clock.
const LOOKS: usize = 64;

/// One micro-batch on its way through a chain, with the memory that it needs.
pub(crate) struct Packet<B: Backend> {
    /// Number of the micro-batch.
    pub number: u64,
    /// What to run.
    pub batch: Batch,
    /// Activations: what the last stage that ran has made of the tokens.
    pub hidden: B::Rows,
    /// Why there will be no logits. Once set, the packet only passes through, so that results keep their order.
    pub failure: Option<String>,
}

/// The next packet, or `None` once the other side is gone and all its packets have been taken.
pub(crate) fn receive<B: Backend>(inbox: &Receiver<Packet<B>>) -> Option<Packet<B>> {
    let start = Instant::now();
    while start.elapsed() < SPIN {
        for _ in 0..LOOKS {
            match inbox.try_recv() {
                Ok(packet) => return Some(packet),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => hint::spin_loop(),
            }
        }
    }
    inbox.recv().ok()
}

/// Where a stage sends its packets.
pub(crate) type Outbox<B> = Sender<Packet<B>>;
