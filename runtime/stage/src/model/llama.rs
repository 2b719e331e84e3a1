//! The Llama graph: per layer, attention with grouped heads and rotary positions, then a gated feed-forward network, each
//! behind a root-mean-square norm and added to the residual stream.
//!
//! ```text
//! x = embed(tokens)                                        first part only
//! each layer:  q, k, v   = norm(x) · Wq, Wk, Wv
//!              x        += attention(rope(q), rope(k), v) · Wo
//!              gate, up  = norm(x) · Wgate, Wup
//!              x        += (silu(gate) * up) · Wdown
//! logits = norm(x) · Whead                                 last part only; Whead is the embedding when the file has no other
//! ```

use std::ops::Range;
use std::sync::Arc;

use pointsman_tensor::backend::{Backend, Heads, Norm, Rope};

use super::card::ModelCard;
use super::{Graph, Part, Step};
use crate::error::StageError;
use crate::load::Loader;

/// Weights of one layer.
struct Layer<B: Backend> {
    attention_norm: Vec<f32>,
    query: B::Matrix,
    key: B::Matrix,
    value: B::Matrix,
    output: B::Matrix,
    feed_forward_norm: Vec<f32>,
    gate: B::Matrix,
    up: B::Matrix,
    down: B::Matrix,
}

/// What turns the last layer's rows into logits.
struct Head<B: Backend> {
    norm: Vec<f32>,
    matrix: Arc<B::Matrix>,
}

struct Llama<B: Backend> {
    heads: Heads,
    feed_forward_length: usize,
    norm_eps: f32,
    rope: Arc<Rope>,
    embedding: Arc<B::Matrix>,
    layers: Vec<Arc<Layer<B>>>,
    head: Arc<Head<B>>,
}

/// Loads all weights of the graph.
pub(super) fn load<B: Backend>(loader: &mut Loader<'_, B>, card: &ModelCard) -> Result<Box<dyn Graph<B>>, StageError> {
    let embedding = Arc::new(loader.matrix("token_embd.weight", card.vocab, card.embedding_length)?);
    let layers = (0..card.layers).map(|index| layer(loader, card, index).map(Arc::new)).collect::<Result<_, _>>()?;
    let norm = loader.vector("output_norm.weight", card.embedding_length)?;
    let matrix = match loader.has("output.weight") {
        true => Arc::new(loader.matrix("output.weight", card.vocab, card.embedding_length)?),
        false => Arc::clone(&embedding),
    };
    let pairs = card.heads.dim / 2;
    let factors = match loader.has("rope_freqs.weight") {
        true => loader.vector("rope_freqs.weight", pairs)?,
        false => vec![1.0; pairs],
    };
    Ok(Box::new(Llama {
        heads: card.heads,
        feed_forward_length: card.feed_forward_length,
        norm_eps: card.norm_eps,
        rope: Arc::new(card.rope(&factors)?),
        embedding,
        layers,
        head: Arc::new(Head { norm, matrix }),
    }))
}

fn layer<B: Backend>(loader: &mut Loader<'_, B>, card: &ModelCard, index: usize) -> Result<Layer<B>, StageError> {
    let (width, inner) = (card.embedding_length, card.feed_forward_length);
    let (query, key) = (card.heads.query * card.heads.dim, card.heads.kv * card.heads.dim);
    let name = |tensor: &str| format!("blk.{index}.{tensor}.weight");
    Ok(Layer {
        attention_norm: loader.vector(&name("attn_norm"), width)?,
        query: loader.matrix(&name("attn_q"), query, width)?,
        key: loader.matrix(&name("attn_k"), key, width)?,
        value: loader.matrix(&name("attn_v"), key, width)?,
        output: loader.matrix(&name("attn_output"), width, query)?,
        feed_forward_norm: loader.vector(&name("ffn_norm"), width)?,
        gate: loader.matrix(&name("ffn_gate"), inner, width)?,
        up: loader.matrix(&name("ffn_up"), inner, width)?,
        down: loader.matrix(&name("ffn_down"), width, inner)?,
    })
}

impl<B: Backend> Graph<B> for Llama<B> {
    fn part(&self, backend: &B, layers: Range<usize>) -> Box<dyn Part<B>> {
        let (query, key) = (self.heads.query * self.heads.dim, self.heads.kv * self.heads.dim);
        Box::new(LlamaPart {
            heads: self.heads,
            norm_eps: self.norm_eps,
            rope: Arc::clone(&self.rope),
            embedding: (layers.start == 0).then(|| Arc::clone(&self.embedding)),
            head: (layers.end == self.layers.len()).then(|| Arc::clone(&self.head)),
            layers: self.layers[layers].to_vec(),
            query: backend.rows(query),
            key: backend.rows(key),
            value: backend.rows(key),
            attention: backend.rows(query),
            gate: backend.rows(self.feed_forward_length),
            up: backend.rows(self.feed_forward_length),
        })
    }
}

struct LlamaPart<B: Backend> {
    heads: Heads,
    norm_eps: f32,
    rope: Arc<Rope>,
    embedding: Option<Arc<B::Matrix>>,
    layers: Vec<Arc<Layer<B>>>,
    head: Option<Arc<Head<B>>>,
    query: B::Rows,
    key: B::Rows,
    value: B::Rows,
    attention: B::Rows,
    gate: B::Rows,
    up: B::Rows,
}

impl<B: Backend> LlamaPart<B> {
    fn run_layer(&mut self, backend: &B, index: usize, step: &Step<'_>, x: &mut B::Rows, kv: &mut B::Kv) {
        let (layer, heads, spans) = (&self.layers[index], self.heads, step.spans);
        let norm = Norm { weight: &layer.attention_norm, eps: self.norm_eps };
        let projections = [&layer.query, &layer.key, &layer.value];
        backend.norm_linear(x, norm, &projections, &mut [&mut self.query, &mut self.key, &mut self.value]);
        backend.rope_append(&self.rope, heads, spans, &mut self.query, &self.key, &self.value, kv, index);
        backend.attention(heads, spans, &self.query, kv, index, &mut self.attention);
        backend.linear_add(&self.attention, &layer.output, x);

        let norm = Norm { weight: &layer.feed_forward_norm, eps: self.norm_eps };
        backend.norm_linear(x, norm, &[&layer.gate, &layer.up], &mut [&mut self.gate, &mut self.up]);
        backend.swiglu_linear_add(&self.gate, &self.up, &layer.down, x);
    }
}

impl<B: Backend> Part<B> for LlamaPart<B> {
    fn forward(&mut self, backend: &B, step: &Step<'_>, hidden: &mut B::Rows, kv: &mut B::Kv, logits: &mut Vec<f32>) {
        if let Some(table) = &self.embedding {
            backend.embed(table, step.tokens, hidden);
        }
        for index in 0..self.layers.len() {
            self.run_layer(backend, index, step, hidden, kv);
        }
        if let Some(head) = self.head.as_ref().filter(|_| !step.wanted.is_empty()) {
            let norm = Norm { weight: &head.norm, eps: self.norm_eps };
            backend.logits(hidden, step.wanted, norm, &head.matrix, logits);
        }
    }
}
