//! A device that follows the words of the trait in f64, one value at a time. Slow, and hard to get wrong.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pointsman_tensor::backend::{Backend, Heads, KvShape, Norm, Rope, Span};
use pointsman_tensor::error::TensorError;
use pointsman_tensor::weights::TensorView;

/// Embedding this token panics, as a faulty device would.
pub const POISON: u32 = 13;

#[derive(Default)]
pub struct Naive {
    pub turn: Mutex<()>,
    /// Whether [`POISON`] works.
    pub faulty: bool,
}

pub struct Matrix {
    rows: usize,
    cols: usize,
    values: Vec<f64>,
}

pub struct Rows {
    width: usize,
    values: Vec<f64>,
}

pub struct Kv {
    shape: KvShape,
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl Rows {
    fn row(&self, index: usize) -> &[f64] {
        &self.values[index * self.width..][..self.width]
    }

    fn count(&self) -> usize {
        self.values.len() / self.width
    }

    fn resize(&mut self, count: usize) {
        self.values.resize(count * self.width, f64::NAN);
    }
}

impl Matrix {
    /// `x · selfᵀ`.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        assert_eq!(x.len(), self.cols);
        let row = |row: usize| &self.values[row * self.cols..][..self.cols];
        (0..self.rows).map(|r| row(r).iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    fn add_to(&self, x: &[f64], acc: &mut Rows, index: usize) {
        let width = acc.width;
        assert_eq!(width, self.rows);
        for (acc, add) in acc.values[index * width..][..width].iter_mut().zip(self.times(x)) {
            *acc += add;
        }
    }
}

impl Kv {
    /// Where the values of a head begin in `keys` and `values`.
    fn place(&self, layer: usize, span: &Span<'_>, position: usize, head: usize) -> usize {
        let KvShape { layers, blocks, block_tokens, heads } = self.shape;
        let block = span.blocks[position / block_tokens] as usize;
        assert!(layer < layers && block < blocks && head < heads.kv);
        (((layer * blocks + block) * block_tokens + position % block_tokens) * heads.kv + head) * heads.dim
    }
}

fn norm_of(x: &[f64], norm: Norm<'_>) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(norm.eps)).sqrt();
    x.iter().zip(norm.weight).map(|(x, weight)| x * scale * f64::from(*weight)).collect()
}

fn rotate(head: &mut [f64], rope: &Rope, position: usize) {
    for (pair, frequency) in head.chunks_exact_mut(2).zip(&rope.inverse_frequencies) {
        let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
        (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos);
    }
}

impl Backend for Naive {
    type Matrix = Matrix;
    type Rows = Rows;
    type Kv = Kv;
    type Turn<'a> = MutexGuard<'a, ()>;

    fn take_turn(&self) -> Self::Turn<'_> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pack(&self, tensor: &TensorView<'_>) -> Result<Matrix, TensorError> {
        let values = tensor.to_f32().into_iter().map(f64::from).collect();
        Ok(Matrix { rows: tensor.rows, cols: tensor.cols, values })
    }

    fn matrix_rows(&self, matrix: &Matrix) -> usize {
        matrix.rows
    }

    fn rows(&self, width: usize) -> Rows {
        Rows { width, values: Vec::new() }
    }

    fn kv(&self, shape: KvShape) -> Result<Kv, TensorError> {
        let size = shape.layers * shape.blocks * shape.block_tokens * shape.heads.kv * shape.heads.dim;
        Ok(Kv { shape, keys: vec![f64::NAN; size], values: vec![f64::NAN; size] })
    }

    fn embed(&self, table: &Matrix, tokens: &[u32], out: &mut Rows) {
        out.values.clear();
        for &token in tokens {
            assert!(!(self.faulty && token == POISON), "token {POISON} is poison");
            out.values.extend_from_slice(&table.values[token as usize * table.cols..][..table.cols]);
        }
    }

    fn norm_linear(&self, x: &Rows, norm: Norm<'_>, weights: &[&Matrix], outs: &mut [&mut Rows]) {
        assert_eq!(weights.len(), outs.len());
        for (weight, out) in weights.iter().zip(outs) {
            assert_eq!(weight.rows, out.width);
            out.values.clear();
            (0..x.count()).for_each(|row| out.values.extend(weight.times(&norm_of(x.row(row), norm))));
        }
    }

    fn rope_append(
        &self,
        rope: &Rope,
        heads: Heads,
        spans: &[Span<'_>],
        q: &mut Rows,
        k: &Rows,
        v: &Rows,
        kv: &mut Kv,
        layer: usize,
    ) {
        let dim = heads.dim;
        for span in spans {
            for (row, position) in (span.row..span.row + span.count).zip(span.start..) {
                let width = q.width;
                q.values[row * width..][..width].chunks_exact_mut(dim).for_each(|head| rotate(head, rope, position));
                for head in 0..heads.kv {
                    let place = kv.place(layer, span, position, head);
                    let mut key = k.row(row)[head * dim..][..dim].to_vec();
                    rotate(&mut key, rope, position);
                    kv.keys[place..place + dim].copy_from_slice(&key);
                    kv.values[place..place + dim].copy_from_slice(&v.row(row)[head * dim..][..dim]);
                }
            }
        }
    }

    fn attention(&self, heads: Heads, spans: &[Span<'_>], q: &Rows, kv: &Kv, layer: usize, out: &mut Rows) {
        let dim = heads.dim;
        out.resize(q.count());
        for span in spans {
            for (row, position) in (span.row..span.row + span.count).zip(span.start..) {
                for head in 0..heads.query {
                    let query = &q.row(row)[head * dim..][..dim];
                    let place = |past| kv.place(layer, span, past, head * heads.kv / heads.query);
                    let score = |past| dot(query, &kv.keys[place(past)..][..dim]) / (dim as f64).sqrt();
                    let weights = softmax((0..=position).map(score).collect());
                    let width = out.width;
                    for (i, out) in out.values[row * width + head * dim..][..dim].iter_mut().enumerate() {
                        *out =
                            weights.iter().enumerate().map(|(past, weight)| weight * kv.values[place(past) + i]).sum();
                    }
                }
            }
        }
    }

    fn linear_add(&self, x: &Rows, weight: &Matrix, acc: &mut Rows) {
        assert_eq!(x.count(), acc.count());
        (0..x.count()).for_each(|row| weight.add_to(x.row(row), acc, row));
    }

    fn swiglu_linear_add(&self, gate: &Rows, up: &Rows, weight: &Matrix, acc: &mut Rows) {
        assert_eq!(gate.count(), acc.count());
        for row in 0..gate.count() {
            let x: Vec<f64> = gate.row(row).iter().zip(up.row(row)).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            weight.add_to(&x, acc, row);
        }
    }

    fn logits(&self, x: &Rows, rows: &[usize], norm: Norm<'_>, head: &Matrix, out: &mut Vec<f32>) {
        out.clear();
        for &row in rows {
            out.extend(head.times(&norm_of(x.row(row), norm)).into_iter().map(|logit| logit as f32));
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn softmax(mut scores: Vec<f64>) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = (*score - max).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
    scores
}
