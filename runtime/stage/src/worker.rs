//! One stage of a chain: a thread that owns its layers' KV store and runs every packet that arrives in its mailbox.
//!
//! 1. A packet arrives; a failed one is passed on at once.
//! 2. The stage waits for its turn on the device and runs its layers.
//! 3. The packet goes to the next stage; the last stage reports the result, and the packet is free again.
//!
//! A panic while layers run is caught and becomes the packet's failure. The stage keeps serving:
//! every buffer is overwritten by the next step, and a step writes only into KV blocks of its own slices, so other
//! sequences are not touched. Those of the failed step may have holes in their store, and the engine must end them.
//! The thread ends when its mailbox is closed and empty.

use std::any::Any;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use crossbeam_channel::Receiver;
use pointsman_engine::ids::ChainId;
use pointsman_engine::port::StepResult;
use pointsman_tensor::backend::{Backend, Span};

use crate::batch::recycle;
use crate::link::{self, Outbox, Packet};
use crate::model::{Part, Step};

/// Takes the results of a chain, in the order of the launches, on the thread of its last stage.
pub type Done = Box<dyn Fn(StepResult) + Send + Sync>;

/// What follows a stage.
pub(crate) enum Next<B: Backend> {
    /// Another stage.
    Stage(Outbox<B>),
    /// Nothing: this is the last.
    Report { chain: ChainId, done: Done, free: Outbox<B> },
}

/// The state of one stage's thread.
pub(crate) struct Worker<B: Backend> {
    pub backend: Arc<B>,
    pub part: Box<dyn Part<B>>,
    pub kv: B::Kv,
    pub inbox: Receiver<Packet<B>>,
    pub next: Next<B>,
    /// Empty between steps; kept for its memory.
    pub spans: Vec<Span<'static>>,
}

impl<B: Backend> Worker<B> {
    /// Serves until the mailbox is closed, or the next stage is gone.
    pub(crate) fn serve(mut self) {
        while let Some(mut packet) = link::receive(&self.inbox) {
            let mut logits = Vec::new();
            if packet.failure.is_none() {
                let run = panic::catch_unwind(AssertUnwindSafe(|| self.run(&mut packet, &mut logits)));
                if let Err(cause) = run {
                    packet.failure = Some(format!("the device failed: {}", message(cause.as_ref())));
                }
            }
            if !self.pass_on(packet, logits) {
                return;
            }
        }
    }

    fn run(&mut self, packet: &mut Packet<B>, logits: &mut Vec<f32>) {
        let mut spans = recycle(mem::take(&mut self.spans));
        spans.extend(packet.batch.spans());
        let step = Step { tokens: packet.batch.tokens(), spans: &spans, wanted: packet.batch.wanted() };
        let turn = self.backend.take_turn();
        self.part.forward(&self.backend, &step, &mut packet.hidden, &mut self.kv, logits);
        drop(turn);
        self.spans = recycle(spans);
    }

    /// False when nobody waits for results any more. The packet is free before its result is told, because the engine may
    /// answer a result with the next launch.
    fn pass_on(&self, mut packet: Packet<B>, logits: Vec<f32>) -> bool {
        match &self.next {
            Next::Stage(outbox) => outbox.send(packet).is_ok(),
            Next::Report { chain, done, free } => {
                let (batch, failure) = (packet.number, packet.failure.take());
                let alive = free.send(packet).is_ok();
                done(StepResult { chain: *chain, batch, logits: failure.map_or(Ok(logits), Err) });
                alive
            }
        }
    }
}

/// The text of a panic.
fn message(cause: &(dyn Any + Send)) -> &str {
    match (cause.downcast_ref::<&str>(), cause.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "unknown cause",
    }
}
