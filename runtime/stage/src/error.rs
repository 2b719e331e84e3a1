//! What can go wrong between an opened model file and a running chain.

use pointsman_engine::ids::ChainId;
use pointsman_tensor::error::TensorError;

/// Why a model can not be loaded, or a chain can not be started.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The file itself, or the device.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A metadata value that no graph can run with.
    #[error("metadata '{key}' {problem}")]
    Metadata {
        /// The whole key.
        key: String,
        /// What is wrong with its value; completes the sentence.
        problem: String,
    },
    /// An architecture without a graph.
    #[error("architecture '{found}' is not supported yet; supported: {}", supported.join(", "))]
    Architecture {
        /// What the file says.
        found: String,
        /// What there is.
        supported: &'static [&'static str],
    },
    /// A tensor whose shape is not what the metadata promises.
    #[error("tensor '{name}' is [{}, {}] (rows, columns), but the metadata asks for [{}, {}]", found.0, found.1, expected.0, expected.1)]
    Shape {
        /// Which tensor.
        name: String,
        /// Rows and columns that the card asks for.
        expected: (usize, usize),
        /// Rows and columns in the file.
        found: (usize, usize),
    },
    /// A tensor that the graph would ignore: running without it would give other results than the model's authors meant.
    #[error(
        "tensor '{name}' has no place in the {architecture} graph; the model needs a feature that is not supported yet"
    )]
    UnusedTensor {
        /// Which tensor.
        name: String,
        /// The graph.
        architecture: &'static str,
    },
    /// A split that leaves a stage without layers.
    #[error("can not split {layers} layers over {stages} stages; choose 1 to {layers}")]
    Stages {
        /// Stages asked for.
        stages: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// A KV store without blocks or with blocks without tokens.
    #[error("a chain needs at least one KV block of at least one token, but got {blocks} blocks of {block_tokens}")]
    KvEmpty {
        /// Blocks asked for.
        blocks: u32,
        /// Tokens in each.
        block_tokens: u32,
    },
    /// The system gives no further thread.
    #[error("can not start the thread of a stage: {0}")]
    Thread(#[source] std::io::Error),
}

/// Why a chain did not take a micro-batch. The plan is lost; nothing of it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainDown {
    /// As many micro-batches as stages are on their way; a caller that waits for results first never sees this.
    #[error("chain {} is full: wait for a result before the next launch", .0.0)]
    Full(ChainId),
    /// A stage thread has ended, so no result will come any more.
    #[error("chain {} has stopped", .0.0)]
    Stopped(ChainId),
}
