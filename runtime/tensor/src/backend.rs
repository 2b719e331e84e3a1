//! The device interface: model operations, not kernels, so that a device may fuse and lay out as it likes.
//!
//! Called by the model graphs of `pointsman-stage`, one stage worker at a time. Implemented by [`crate::cpu::Cpu`].
//!
//! Invariant of every implementation: each row of a result depends only on that row's inputs, with one fixed order of
//! floating-point operations, so that results are bit-identical whatever else is in the batch and however a prompt is cut.

use crate::error::TensorError;
use crate::weights::TensorView;

/// A run of consecutive tokens of one sequence inside a batch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// First row of the batch that belongs to it.
    pub row: usize,
    /// Rows that belong to it, at least one.
    pub count: usize,
    /// Position of the first row in its sequence.
    pub start: usize,
    /// Block table of the sequence: position `p` lives in `blocks[p / block_tokens]`. Covers `start + count` positions.
    pub blocks: &'a [u32],
}

/// Root-mean-square normalisation with a learned weight.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// One factor for each column.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
}

/// Attention heads of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads; a multiple of `kv`.
    pub query: usize,
    /// Key and value heads.
    pub kv: usize,
    /// Values in a head; even.
    pub dim: usize,
}

/// Rotary position embedding of a model. Rotates pairs `(i, i + 1)` (Llama as GGUF stores it) for `i` even.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Angle per position of each pair: `base^(-2i/dim)`, divided by the model's scaling; `dim / 2` values.
    pub inverse_frequencies: Vec<f32>,
}

/// Shape of one stage's paged KV store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers of this stage.
    pub layers: usize,
    /// Blocks in the store.
    pub blocks: usize,
    /// Tokens in a block.
    pub block_tokens: usize,
    /// Heads of a layer.
    pub heads: Heads,
}

/// A device that runs model operations. All `Rows` are `[n, width]` of f32, row-major in meaning.
pub trait Backend: Send + Sync + 'static {
    /// A weight matrix `[rows, cols]` in the device's own layout.
    type Matrix: Send + Sync + 'static;
    /// Activations.
    type Rows: Send + 'static;
    /// The paged keys and values of one stage.
    type Kv: Send + 'static;
    /// Held while one stage runs one micro-batch; stages that share a device take turns in order of arrival.
    type Turn<'a>
    where
        Self: 'a;

    /// Waits for the device.
    fn take_turn(&self) -> Self::Turn<'_>;

    /// Brings a matrix into the device's layout.
    ///
    /// # Errors
    /// A type or shape that the device does not run.
    fn pack(&self, tensor: &TensorView<'_>) -> Result<Self::Matrix, TensorError>;
    /// Output width of a matrix.
    fn matrix_rows(&self, matrix: &Self::Matrix) -> usize;
    /// An empty activation buffer of this width; it grows as needed and keeps its memory.
    fn rows(&self, width: usize) -> Self::Rows;
    /// A KV store, its memory untouched until it is written.
    ///
    /// # Errors
    /// A head size that the device does not run, or no memory.
    fn kv(&self, shape: KvShape) -> Result<Self::Kv, TensorError>;

    /// `out[i] = table[tokens[i]]`. Tokens are below the table's rows.
    fn embed(&self, table: &Self::Matrix, tokens: &[u32], out: &mut Self::Rows);
    /// `outs[j] = norm(x) · weights[j]ᵀ`, the normalisation done once.
    fn norm_linear(&self, x: &Self::Rows, norm: Norm<'_>, weights: &[&Self::Matrix], outs: &mut [&mut Self::Rows]);
    /// Rotates `q` and `k` to their positions, and appends `k` and `v` to the store.
    #[expect(clippy::too_many_arguments, reason = "one fused operation; a struct would only rename the arguments")]
    fn rope_append(
        &self,
        rope: &Rope,
        heads: Heads,
        spans: &[Span<'_>],
        q: &mut Self::Rows,
        k: &Self::Rows,
        v: &Self::Rows,
        kv: &mut Self::Kv,
        layer: usize,
    );
    /// Causal attention of each row over its own sequence's positions `0..=p`, all of them already in the store.
    fn attention(
        &self,
        heads: Heads,
        spans: &[Span<'_>],
        q: &Self::Rows,
        kv: &Self::Kv,
        layer: usize,
        out: &mut Self::Rows,
    );
    /// `acc += x · weightᵀ`.
    fn linear_add(&self, x: &Self::Rows, weight: &Self::Matrix, acc: &mut Self::Rows);
    /// `acc += (silu(gate) * up) · weightᵀ`.
    fn swiglu_linear_add(&self, gate: &Self::Rows, up: &Self::Rows, weight: &Self::Matrix, acc: &mut Self::Rows);
    /// Logits of the chosen rows: `out = norm(x[rows]) · headᵀ`, `rows.len() * head rows` values; `out` is replaced.
    fn logits(&self, x: &Self::Rows, rows: &[usize], norm: Norm<'_>, head: &Self::Matrix, out: &mut Vec<f32>);
}
