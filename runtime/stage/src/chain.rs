//! A chain: a copy of the model's graph cut into stages, each with its own thread and its own paged KV store. Chains of one
//! model share its weights.
//!
//! Built at start by the application, fed by the engine's driver. There are at most as many micro-batches on their way as
//! there are stages; results come in the order of the launches, exactly one for each. Dropping a chain lets what has been
//! launched finish, then joins the threads.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use pointsman_engine::ids::ChainId;
use pointsman_engine::port::StepPlan;
use pointsman_tensor::backend::{Backend, KvShape};

use crate::batch::{Batch, Bounds};
use crate::error::{ChainDown, StageError};
use crate::link::Packet;
use crate::model::Model;
use crate::plan::StagePlan;
use crate::worker::{Done, Next, Worker};

/// How a chain is cut and how much it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainOptions {
    /// Its id in plans and results.
    pub chain: ChainId,
    /// Stages, 1 to the model's layers.
    pub stages: usize,
    /// Blocks in the KV store of each stage.
    pub kv_blocks: u32,
    /// Tokens in a block.
    pub block_tokens: u32,
}

/// A running chain.
pub struct Chain<B: Backend> {
    id: ChainId,
    bounds: Bounds,
    free: Receiver<Packet<B>>,
    /// Mailbox of the first stage; `None` only while the chain is dropped.
    first: Option<Sender<Packet<B>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Backend> Chain<B> {
    /// Starts the stages. `done` is called once for each launch, on the thread of the last stage; it must return soon, for
    /// the stage waits for it, and it must not drop the chain.
    ///
    /// # Errors
    /// A split that leaves a stage without layers, a KV store that is empty or does not fit the device or its memory, or
    /// no threads left.
    pub fn spawn(model: &Model<B>, backend: Arc<B>, options: ChainOptions, done: Done) -> Result<Self, StageError> {
        let plan = StagePlan::even(model.card().layers, options.stages)?;
        let (blocks, block_tokens) = (options.kv_blocks, options.block_tokens);
        if blocks == 0 || block_tokens == 0 {
            return Err(StageError::KvEmpty { blocks, block_tokens });
        }
        let bounds = Bounds {
            vocab: model.card().vocab,
            context: model.card().context_length,
            blocks: blocks as usize,
            block_tokens: block_tokens as usize,
        };
        let (free_packets, free) = bounded(plan.stages());
        for _ in 0..plan.stages() {
            let hidden = backend.rows(model.card().embedding_length);
            // The list has room for every packet, so this can not fail.
            let _ = free_packets.send(Packet { number: 0, batch: Batch::default(), hidden, failure: None });
        }
        let mut chain = Self { id: options.chain, bounds, free, first: None, threads: Vec::new() };
        // From the last stage to the first, because each needs the mailbox of the next. A failure on the way drops the
        // mailbox, which ends the stages that run already.
        let mut next = Next::Report { chain: options.chain, done, free: free_packets };
        for (stage, layers) in plan.ranges().enumerate().rev() {
            let shape = KvShape {
                layers: layers.len(),
                blocks: bounds.blocks,
                block_tokens: bounds.block_tokens,
                heads: model.card().heads,
            };
            let (mailbox, inbox) = bounded(plan.stages());
            let worker = Worker {
                part: model.part(&backend, layers),
                kv: backend.kv(shape)?,
                backend: Arc::clone(&backend),
                inbox,
                next,
                spans: Vec::new(),
            };
            let name = format!("c{}-stage{stage}", options.chain.0);
            let thread = thread::Builder::new().name(name).spawn(|| worker.serve()).map_err(StageError::Thread)?;
            chain.threads.push(thread);
            next = Next::Stage(mailbox);
        }
        if let Next::Stage(mailbox) = next {
            chain.first = Some(mailbox);
        }
        Ok(chain)
    }

    /// Sends a micro-batch on its way. Never waits. A plan that does not fit the model or the KV store is answered
    /// through `done` with an error, in its place among the results.
    ///
    /// # Errors
    /// Too many micro-batches in flight, or a chain that has stopped; nothing of the plan has run and no result will come.
    pub fn launch(&self, plan: StepPlan) -> Result<(), ChainDown> {
        let mut packet = self.free.try_recv().map_err(|error| match error {
            TryRecvError::Empty => ChainDown::Full(self.id),
            TryRecvError::Disconnected => ChainDown::Stopped(self.id),
        })?;
        packet.number = plan.batch;
        packet.failure = if plan.chain == self.id {
            packet.batch.fill(&plan, &self.bounds).err()
        } else {
            Some(format!("the step is for chain {}, but this is chain {}", plan.chain.0, self.id.0))
        };
        match &self.first {
            Some(mailbox) => mailbox.try_send(packet).map_err(|_| ChainDown::Stopped(self.id)),
            None => Err(ChainDown::Stopped(self.id)),
        }
    }
}

impl<B: Backend> Drop for Chain<B> {
    fn drop(&mut self) {
        self.first = None;
        for thread in self.threads.drain(..) {
            // A stage that panicked outside its layers has nothing left to tell.
            let _ = thread.join();
        }
    }
}
