//! Runs step plans on a chain and waits for their results.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use pointsman_engine::ids::{BlockId, ChainId, RequestId};
use pointsman_engine::port::{Logits, SeqSlice, StepPlan, StepResult};
use pointsman_stage::{Chain, ChainOptions, Model};
use pointsman_tensor::backend::Backend;

use crate::tiny::{CONTEXT, Tiny, VOCAB};

pub const BLOCK_TOKENS: usize = 16;
const BLOCKS_A_SEQUENCE: usize = CONTEXT / BLOCK_TOKENS;
/// Room for this many sequences of full length.
pub const SEQUENCES: usize = 4;
pub const KV_BLOCKS: usize = SEQUENCES * BLOCKS_A_SEQUENCE;

pub fn load<B: Backend>(tiny: &Tiny, backend: &B) -> Model<B> {
    Model::load(&tiny.gguf(), backend, &mut |_, _| ()).unwrap()
}

pub fn options(stages: usize) -> ChainOptions {
    let (kv_blocks, block_tokens) = (KV_BLOCKS as u32, BLOCK_TOKENS as u32);
    ChainOptions { chain: ChainId(0), stages, kv_blocks, block_tokens }
}

/// A chain with its results.
pub struct Harness<B: Backend> {
    pub chain: Chain<B>,
    pub results: Receiver<StepResult>,
    launched: u64,
}

impl<B: Backend> Harness<B> {
    pub fn new(model: &Model<B>, backend: &Arc<B>, stages: usize) -> Self {
        let (tell, results) = bounded(16);
        let done = Box::new(move |result| tell.send(result).unwrap());
        let chain = Chain::spawn(model, Arc::clone(backend), options(stages), done).unwrap();
        Self { chain, results, launched: 0 }
    }

    /// Launches one micro-batch.
    pub fn launch(&mut self, slices: Vec<SeqSlice>) {
        self.chain.launch(StepPlan { chain: ChainId(0), batch: self.launched, slices }).unwrap();
        self.launched += 1;
    }

    /// The next result, checked for its number.
    pub fn result(&mut self, number: u64) -> Result<Vec<f32>, String> {
        let result = self.results.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((result.chain, result.batch), (ChainId(0), number));
        result.logits
    }

    /// Launches one micro-batch and waits for it.
    pub fn run(&mut self, slices: Vec<SeqSlice>) -> Result<Vec<f32>, String> {
        self.launch(slices);
        self.result(self.launched - 1)
    }
}

/// The block table of sequence `n`: its blocks are far apart and not in order.
pub fn table(n: usize) -> Arc<[BlockId]> {
    (0..BLOCKS_A_SEQUENCE).rev().map(|block| BlockId((block * SEQUENCES + n) as u32)).collect()
}

/// `tokens` of sequence `n`, from position `start` on.
pub fn slice(n: usize, start: usize, tokens: &[u32], logits: Logits) -> SeqSlice {
    let request = RequestId(n as u64);
    SeqSlice { request, start: start as u32, tokens: tokens.to_vec(), blocks: table(n), logits }
}

/// Tokens of sequence `n`, all different from [`crate::naive::POISON`].
pub fn tokens(n: usize, count: usize) -> Vec<u32> {
    (0..count).map(|at| (14 + (n * 131 + at * 37 + at * at * 11) % (VOCAB - 14)) as u32).collect()
}

/// Splits logits into rows.
pub fn rows(logits: &[f32]) -> Vec<&[f32]> {
    assert_eq!(logits.len() % VOCAB, 0);
    logits.chunks(VOCAB).collect()
}
