//! Runs a model on one chain, one sequence at a time, with nothing but the stages: what the golden tests compare.
//!
//! The default model is found through `POINTSMAN_TEST_MODEL`, else in the user's cache, where `pointsman model pull` puts
//! it; `tests/run` does that first.

use std::path::PathBuf;
use std::sync::Arc;

use pointsman_engine::ids::{BlockId, ChainId, RequestId};
use pointsman_engine::port::{Logits, SeqSlice, StepPlan, StepResult};
use pointsman_stage::model::Model;
use pointsman_stage::{Chain, ChainOptions};
use pointsman_tensor::cpu::Cpu;
use pointsman_tensor::weights::Gguf;

const BLOCK_TOKENS: u32 = 32;
const BLOCKS: u32 = 16;

/// The default model's file.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn default_model() -> PathBuf {
    let named = std::env::var_os("POINTSMAN_TEST_MODEL").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cached = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        cache.unwrap_or_default().join("pointsman/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    };
    let path = named.unwrap_or_else(cached);
    assert!(path.is_file(), "{} is missing: run `cargo run -- model pull`", path.display());
    path
}

/// One chain with a store for 512 tokens.
pub struct Runner {
    chain: Chain<Cpu>,
    results: std::sync::mpsc::Receiver<StepResult>,
    batch: u64,
}

impl Runner {
    /// Loads `gguf` and cuts it into `stages`.
    ///
    /// # Panics
    /// The model can not be loaded: then there is nothing to compare.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test's helper")]
    pub fn new(gguf: &Gguf, stages: usize) -> Self {
        let cpu = Arc::new(Cpu::new(2, None).expect("a CPU"));
        let model = Model::load(gguf, cpu.as_ref(), &mut |_, _| {}).expect("the model loads");
        let (report, results) = std::sync::mpsc::sync_channel(stages);
        let options = ChainOptions { chain: ChainId(0), stages, kv_blocks: BLOCKS, block_tokens: BLOCK_TOKENS };
        let done = Box::new(move |result| drop(report.send(result)));
        let chain = Chain::spawn(&model, cpu, options, done).expect("the chain starts");
        Self { chain, results, batch: 0 }
    }

    /// Runs `tokens` at position `start` and returns the logits that follow the last one.
    ///
    /// # Panics
    /// The stages fail.
    #[expect(clippy::expect_used, reason = "a test's helper")]
    pub fn step(&mut self, start: u32, tokens: &[u32]) -> Vec<f32> {
        let blocks: Arc<[BlockId]> = (0..BLOCKS).map(BlockId).collect();
        let slice = SeqSlice { request: RequestId(0), start, tokens: tokens.to_vec(), blocks, logits: Logits::Last };
        self.chain
            .launch(StepPlan { chain: ChainId(0), batch: self.batch, slices: vec![slice] })
            .expect("the chain runs");
        self.batch += 1;
        self.results.recv().expect("a result").logits.expect("logits")
    }
}

/// The log-probability of `token`.
#[must_use]
pub fn log_prob(logits: &[f32], token: u32) -> f32 {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - peak).exp()).sum();
    logits[token as usize] - peak - sum.ln() as f32
}

/// The most likely token that is not one of `banned`.
#[must_use]
pub fn best(logits: &[f32], banned: &[u32]) -> u32 {
    let mut best = None;
    for (token, logit) in (0..).zip(logits) {
        if !banned.contains(&token) && best.is_none_or(|(_, most)| *logit > most) {
            best = Some((token, *logit));
        }
    }
    best.map_or(0, |(token, _)| token)
}
