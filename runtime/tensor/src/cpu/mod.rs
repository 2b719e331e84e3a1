//! The CPU as a device.
//!
//! [`Cpu`] implements [`Backend`] for the stage workers: each operation prepares its input (`activations`), multiplies
//! panels of packed weights with it (`linear`), or attends over the paged store (`attention`), as one or two regions of
//! the thread pool (`pool`).
//!
//! Invariant: an output element is computed by one fixed sequence of operations, whatever the instruction set, the number
//! of threads, the batch around it, or the cut of the prompt. So all of these give the same bits, and tests compare bits.

mod activations;
mod attention;
mod dot;
mod linear;
mod matrix;
pub(crate) mod memory;
mod pool;
mod rope;
mod rows;
pub(crate) mod simd;
mod turn;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(not(target_arch = "x86_64"))]
#[path = "x86_absent.rs"]
mod x86;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::{Backend, Heads, KvShape, Norm, Rope, Span};
use crate::error::TensorError;
use crate::kv::Kv;
use crate::weights::TensorView;
use activations::{Activations, Source};
use attention::Attention;
use linear::Product;
pub use matrix::Matrix;
use pool::Pool;
pub use pool::THREADS_MAX;
pub use rows::Rows;
use simd::Isa;
pub use simd::SimdLevel;
pub use turn::Turn;
use turn::Turnstile;

/// The CPU of this machine, or the share of it that a number of threads is.
pub struct Cpu {
    isa: Isa,
    threads: usize,
    turnstile: Turnstile,
    /// What an operation needs besides its arguments. The lock is free whenever callers hold their turns.
    bench: Mutex<Bench>,
    packed_bytes: AtomicUsize,
}

/// Threads and buffers.
struct Bench {
    pool: Pool,
    activations: Activations,
    attention: attention::Scratch,
    angles: rope::Angles,
}

impl Cpu {
    /// A device of `threads` threads, of which the caller of an operation is one. It uses the best instructions that the
    /// machine has, or those of `level`.
    ///
    /// # Errors
    /// Threads that can not be had, a level that the machine does not have.
    pub fn new(threads: usize, level: Option<SimdLevel>) -> Result<Self, TensorError> {
        let isa = level.map_or_else(|| Ok(Isa::best()), Isa::new)?;
        let bench = Bench {
            pool: Pool::new(threads)?,
            activations: Activations::default(),
            attention: attention::Scratch::default(),
            angles: rope::Angles::default(),
        };
        let (turnstile, bench) = (Turnstile::default(), Mutex::new(bench));
        Ok(Self { isa, threads, turnstile, bench, packed_bytes: AtomicUsize::new(0) })
    }

    /// For people: `cpu, 2 threads, AVX2`.
    #[must_use]
    pub fn describe(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu, {} thread{plural}, {}", self.threads, self.level())
    }

    /// Instructions in use.
    #[must_use]
    pub fn level(&self) -> SimdLevel {
        self.isa.level()
    }

    /// Threads in use, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes of all matrices that this device has packed.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.packed_bytes.load(Ordering::Relaxed)
    }

    /// Every buffer is overwritten by the operation that uses it, so one that panicked leaves nothing broken.
    fn bench(&self) -> MutexGuard<'_, Bench> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bench {
    /// `out += source · weightᵀ`.
    fn add(&mut self, isa: Isa, source: Source<'_>, weight: &Matrix, acc: &mut Rows) {
        self.activations.fill(isa, &mut self.pool, source, std::iter::once(weight));
        assert_eq!((acc.width(), acc.count()), (weight.rows(), self.activations.rows()), "a sum of another shape");
        linear::run(isa, &mut self.pool, &self.activations, &[Product::added(weight, acc.values_mut())]);
    }
}

impl Backend for Cpu {
    type Matrix = Matrix;
    type Rows = Rows;
    type Kv = Kv;
    type Turn<'a> = Turn<'a>;

    fn take_turn(&self) -> Turn<'_> {
        self.turnstile.take()
    }

    fn pack(&self, tensor: &TensorView<'_>) -> Result<Matrix, TensorError> {
        let matrix = Matrix::pack(tensor, &mut self.bench().pool)?;
        self.packed_bytes.fetch_add(matrix.bytes(), Ordering::Relaxed);
        Ok(matrix)
    }

    fn matrix_rows(&self, matrix: &Matrix) -> usize {
        matrix.rows()
    }

    fn rows(&self, width: usize) -> Rows {
        Rows::new(width)
    }

    fn kv(&self, shape: KvShape) -> Result<Kv, TensorError> {
        Kv::new(shape)
    }

    fn embed(&self, table: &Matrix, tokens: &[u32], out: &mut Rows) {
        assert_eq!(out.width(), table.cols(), "the embedding has another width");
        out.resize(tokens.len());
        let width = out.width();
        let rows = rows::Parts::new(out.values_mut());
        self.bench().pool.run(tokens.len(), &|_, i| {
            // SAFETY: each row is one task's own.
            table.row(tokens[i] as usize, unsafe { rows.slice(i * width..(i + 1) * width) });
        });
    }

    fn norm_linear(&self, x: &Rows, norm: Norm<'_>, weights: &[&Matrix], outs: &mut [&mut Rows]) {
        assert_eq!(weights.len(), outs.len(), "an output for each matrix");
        let Bench { pool, activations, .. } = &mut *self.bench();
        activations.fill(self.isa, pool, Source::Norm(x, norm), weights.iter().copied());
        let products: Vec<_> = weights
            .iter()
            .zip(outs)
            .map(|(weight, out)| {
                assert_eq!(out.width(), weight.rows(), "an output of another width");
                out.resize(x.count());
                Product::new(weight, out.values_mut())
            })
            .collect();
        linear::run(self.isa, pool, activations, &products);
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
        let Bench { pool, angles, .. } = &mut *self.bench();
        rope::Append { heads, spans, keys: k, values: v, layer }.run(self.isa, pool, angles, rope, q, kv);
    }

    fn attention(&self, heads: Heads, spans: &[Span<'_>], q: &Rows, kv: &Kv, layer: usize, out: &mut Rows) {
        let Bench { pool, attention, .. } = &mut *self.bench();
        Attention { heads, spans, queries: q, kv, layer }.run(self.isa, pool, attention, out);
    }

    fn linear_add(&self, x: &Rows, weight: &Matrix, acc: &mut Rows) {
        self.bench().add(self.isa, Source::Plain(x), weight, acc);
    }

    fn swiglu_linear_add(&self, gate: &Rows, up: &Rows, weight: &Matrix, acc: &mut Rows) {
        self.bench().add(self.isa, Source::Gated { gate, up }, weight, acc);
    }

    fn logits(&self, x: &Rows, rows: &[usize], norm: Norm<'_>, head: &Matrix, out: &mut Vec<f32>) {
        let Bench { pool, activations, .. } = &mut *self.bench();
        activations.fill(self.isa, pool, Source::ChosenNorm(x, norm, rows), std::iter::once(head));
        out.clear();
        out.resize(rows.len() * head.rows(), 0.0);
        linear::run(self.isa, pool, activations, &[Product::new(head, out)]);
    }
}

/// Rows that the spans cover: in order, without gaps, so that none is written by two.
fn check_spans(spans: &[Span<'_>]) -> usize {
    spans.iter().fold(0, |next, span| {
        assert_eq!(span.row, next, "spans must cover the rows in order");
        next + span.count
    })
}
