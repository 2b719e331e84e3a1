//! The input of matrix products: normalised, gated or as it is, in f32 or quantised to 16 bits.
//!
//! Filled once an operation, then read by all its products. Quantised, 32 values share a scale:
//!
//! ```text
//! dx   = largest magnitude / 32767
//! q[k] = x[k] / dx, to the nearest integer, ties to even      -32767..=32767
//! s    = dx * (sum of q)                                      meets the offsets of the weights
//! ```
//!
//! The codes of a block lie in the order of [`ORDER`]. They have sixteen bits, where others take eight: the weights' own rounding then is the only one that matters. With eight, the
//! logits of a small model carry an error of 0.1 or more, for a product that is less than twice as fast.

use super::matrix::{BLOCK, Matrix, ORDER};
use super::pool::Pool;
use super::rows::{Parts, Rows};
use super::simd::{Isa, LANES, LaneOp, Lanes};
use crate::backend::Norm;

/// Values that one task prepares, at least: some microseconds of work.
pub(crate) const TASK_VALUES: usize = 8192;

/// Blocks of smaller values than this are taken as zeros; their reciprocal would overflow.
const SMALLEST: f32 = 1e-30;

/// The code of the largest magnitude of a block.
const LARGEST_CODE: f32 = 32767.0;

/// Where input rows come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The rows themselves.
    Plain(&'a Rows),
    /// Rows divided by their root mean square, times a weight.
    Norm(&'a Rows, Norm<'a>),
    /// The same of chosen rows.
    ChosenNorm(&'a Rows, Norm<'a>, &'a [usize]),
    /// `silu(gate) * up`.
    Gated { gate: &'a Rows, up: &'a Rows },
}

impl Source<'_> {
    fn rows(&self) -> usize {
        match self {
            Self::Plain(x) | Self::Norm(x, _) => x.count(),
            Self::ChosenNorm(_, _, rows) => rows.len(),
            Self::Gated { gate, .. } => gate.count(),
        }
    }

    fn cols(&self) -> usize {
        match self {
            Self::Plain(x) | Self::Norm(x, _) | Self::ChosenNorm(x, ..) => x.width(),
            Self::Gated { gate, .. } => gate.width(),
        }
    }

    fn check(&self) {
        match self {
            Self::Plain(_) => {}
            Self::Norm(x, norm) | Self::ChosenNorm(x, norm, _) => {
                assert_eq!(norm.weight.len(), x.width(), "the norm has another width than its input");
            }
            Self::Gated { gate, up } => {
                assert_eq!((gate.width(), gate.count()), (up.width(), up.count()), "gate and up differ in shape");
            }
        }
    }
}

/// Prepared input `[rows, cols]`; `cols` is a multiple of 8, and of 32 for the quantised form.
#[derive(Default)]
pub(crate) struct Activations {
    cols: usize,
    rows: usize,
    floats: Vec<f32>,
    codes: Vec<i16>,
    /// dx and s of each block, row after row.
    scales: Vec<[f32; 2]>,
}

impl Activations {
    /// Prepares the rows of `source` in the forms that products with `matrices` take.
    pub(crate) fn fill<'m>(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        source: Source<'_>,
        matrices: impl Iterator<Item = &'m Matrix>,
    ) {
        source.check();
        let (mut wants_floats, mut wants_codes) = (false, false);
        for matrix in matrices {
            assert_eq!(matrix.cols(), source.cols(), "the input has another width than the matrix");
            wants_codes |= matrix.format().is_quantised();
            wants_floats |= !matrix.format().is_quantised();
        }
        (self.rows, self.cols) = (source.rows(), source.cols());
        let values = self.rows * self.cols;
        self.floats.resize(if wants_floats { values } else { 0 }, 0.0);
        self.codes.resize(if wants_codes { values } else { 0 }, 0);
        self.scales.resize(if wants_codes { values / BLOCK } else { 0 }, [0.0; 2]);
        if values == 0 {
            return;
        }

        let (rows, cols) = (self.rows, self.cols);
        let (floats, codes, scales) =
            (Parts::new(&mut self.floats), Parts::new(&mut self.codes), Parts::new(&mut self.scales));
        let chunk = TASK_VALUES.div_ceil(cols);
        pool.run(rows.div_ceil(chunk), &|_, task| {
            let chosen = task * chunk..rows.min((task + 1) * chunk);
            let part = |wanted: bool, size: usize| if wanted { chosen.start * size..chosen.end * size } else { 0..0 };
            // SAFETY: each row is one task's own, in all three.
            let (floats, codes, scales) = unsafe {
                (
                    floats.slice(part(wants_floats, cols)),
                    codes.slice(part(wants_codes, cols)),
                    scales.slice(part(wants_codes, cols / BLOCK)),
                )
            };
            isa.run(Prepare { source, first: chosen.start, rows: chosen.len(), floats, codes, scales });
        });
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Rows in f32: all or none.
    pub(crate) fn float_rows(&self) -> usize {
        if self.floats.is_empty() { 0 } else { self.rows }
    }

    /// Quantised rows: all or none.
    pub(crate) fn quantised_rows(&self) -> usize {
        if self.codes.is_empty() { 0 } else { self.rows }
    }

    /// A row in f32.
    pub(crate) fn float_row(&self, row: usize) -> &[f32] {
        &self.floats[row * self.cols..][..self.cols]
    }

    /// The codes of a row, each block in the order of [`ORDER`].
    pub(crate) fn codes(&self, row: usize) -> &[i16] {
        &self.codes[row * self.cols..][..self.cols]
    }

    /// dx and s of the blocks of a row.
    pub(crate) fn scales(&self, row: usize) -> &[[f32; 2]] {
        let blocks = self.cols / BLOCK;
        &self.scales[row * blocks..][..blocks]
    }

    /// Codes, and dx and s, of one block.
    pub(crate) fn block(&self, row: usize, block: usize) -> (&[i16], [f32; 2]) {
        (&self.codes(row)[block * BLOCK..][..BLOCK], self.scales(row)[block])
    }
}

/// One task: some rows in the wanted forms; unwanted ones are empty.
struct Prepare<'a> {
    source: Source<'a>,
    first: usize,
    rows: usize,
    floats: &'a mut [f32],
    codes: &'a mut [i16],
    scales: &'a mut [[f32; 2]],
}

impl LaneOp for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        for i in 0..self.rows {
            let row = self.first + i;
            match self.source {
                Source::Plain(x) => self.put(lanes, i, &Plain { x: chunks(x.row(row)) }),
                Source::Norm(x, norm) => self.put(lanes, i, &Normed::new(lanes, x.row(row), norm)),
                Source::ChosenNorm(x, norm, chosen) => {
                    self.put(lanes, i, &Normed::new(lanes, x.row(chosen[row]), norm));
                }
                Source::Gated { gate, up } => {
                    self.put(lanes, i, &Gated { gate: chunks(gate.row(row)), up: chunks(up.row(row)) });
                }
            }
        }
    }
}

impl Prepare<'_> {
    /// Writes row `i`.
    #[inline(always)]
    fn put<L: Lanes>(&mut self, lanes: L, i: usize, row: &impl Row<L>) {
        let width = row.vectors() * LANES;
        if !self.floats.is_empty() {
            let floats = &mut self.floats[i * width..][..width];
            for (k, out) in floats.as_chunks_mut().0.iter_mut().enumerate() {
                lanes.store(row.at(lanes, k), out);
            }
        }
        if !self.codes.is_empty() {
            let codes = &mut self.codes[i * width..][..width];
            let scales = &mut self.scales[i * (width / BLOCK)..][..width / BLOCK];
            for (block, (codes, scales)) in codes.as_chunks_mut::<BLOCK>().0.iter_mut().zip(scales).enumerate() {
                let k = block * (BLOCK / LANES);
                let x = [row.at(lanes, k), row.at(lanes, k + 1), row.at(lanes, k + 2), row.at(lanes, k + 3)];
                (*codes, *scales) = quantise(lanes, x);
            }
        }
    }
}

/// A row that is computed as it is written. (A closure would not be compiled with the instructions of its caller.)
trait Row<L: Lanes> {
    fn vectors(&self) -> usize;
    /// Vector `k`.
    fn at(&self, lanes: L, k: usize) -> L::V;
}

struct Plain<'a> {
    x: &'a [[f32; LANES]],
}

impl<L: Lanes> Row<L> for Plain<'_> {
    #[inline(always)]
    fn vectors(&self) -> usize {
        self.x.len()
    }

    #[inline(always)]
    fn at(&self, lanes: L, k: usize) -> L::V {
        lanes.load(&self.x[k])
    }
}

struct Normed<'a, L: Lanes> {
    x: &'a [[f32; LANES]],
    weight: &'a [[f32; LANES]],
    /// One over the root of the mean square.
    factor: L::V,
}

impl<'a, L: Lanes> Normed<'a, L> {
    #[inline(always)]
    fn new(lanes: L, x: &'a [f32], norm: Norm<'a>) -> Self {
        let mut squares = lanes.splat(0.0);
        for x in chunks(x) {
            let x = lanes.load(x);
            squares = lanes.fma(x, x, squares);
        }
        let mean = lanes.sum(squares) / x.len() as f32;
        let factor = lanes.splat(1.0 / (mean + norm.eps).sqrt());
        Self { x: chunks(x), weight: chunks(norm.weight), factor }
    }
}

impl<L: Lanes> Row<L> for Normed<'_, L> {
    #[inline(always)]
    fn vectors(&self) -> usize {
        self.x.len()
    }

    #[inline(always)]
    fn at(&self, lanes: L, k: usize) -> L::V {
        lanes.mul(lanes.mul(lanes.load(&self.x[k]), self.factor), lanes.load(&self.weight[k]))
    }
}

struct Gated<'a> {
    gate: &'a [[f32; LANES]],
    up: &'a [[f32; LANES]],
}

impl<L: Lanes> Row<L> for Gated<'_> {
    #[inline(always)]
    fn vectors(&self) -> usize {
        self.gate.len()
    }

    #[inline(always)]
    fn at(&self, lanes: L, k: usize) -> L::V {
        lanes.mul(lanes.silu(lanes.load(&self.gate[k])), lanes.load(&self.up[k]))
    }
}

#[inline(always)]
fn chunks(row: &[f32]) -> &[[f32; LANES]] {
    row.as_chunks().0
}

/// Codes, dx and s of a block.
#[inline(always)]
fn quantise<L: Lanes>(lanes: L, x: [L::V; 4]) -> ([i16; BLOCK], [f32; 2]) {
    let [a, b, c, d] = x;
    let [ab, cd] = [lanes.max(lanes.abs(a), lanes.abs(b)), lanes.max(lanes.abs(c), lanes.abs(d))];
    let largest = lanes.max_lane(lanes.max(ab, cd));
    if largest < SMALLEST {
        return ([0; BLOCK], [0.0; 2]);
    }
    let scale = lanes.splat(LARGEST_CODE / largest);
    let first = lanes.to_i16([lanes.mul(a, scale), lanes.mul(b, scale)]);
    let second = lanes.to_i16([lanes.mul(c, scale), lanes.mul(d, scale)]);
    let codes = ORDER.map(|column| if column < 16 { first[column] } else { second[column - 16] });
    let sum: i32 = codes.iter().map(|code| i32::from(*code)).sum();
    let dx = largest / LARGEST_CODE;
    (codes, [dx, dx * sum as f32])
}
