//! Matrix products over the pool: `out = x · Wᵀ`, or added to what is there.
//!
//! The work is cut by panels of the matrices and by rows of the input, and the pieces are claimed one by one, so that
//! threads of unequal speed end together. How it is cut never changes a result.

use super::activations::Activations;
use super::dot::{Panel, TILE};
use super::matrix::{Matrix, PANEL};
use super::pool::Pool;
use super::rows::Parts;
use super::simd::Isa;

/// Pieces a thread, so that the last one costs little when a thread is late.
const PIECES: usize = 8;

/// One product: a matrix, and where its output goes, `[rows of the input, rows of the matrix]`.
pub(crate) struct Product<'a> {
    matrix: &'a Matrix,
    out: Parts<'a, f32>,
    add: bool,
}

impl<'a> Product<'a> {
    /// `out` is replaced.
    pub(crate) fn new(matrix: &'a Matrix, out: &'a mut [f32]) -> Self {
        Self { matrix, out: Parts::new(out), add: false }
    }

    /// `out` is added to.
    pub(crate) fn added(matrix: &'a Matrix, out: &'a mut [f32]) -> Self {
        Self { matrix, out: Parts::new(out), add: true }
    }

    /// Multiplies one panel with a tile of the input, rows `first ..`.
    ///
    /// # Safety
    /// No other thread works on the same panel and the same rows.
    unsafe fn run(&self, isa: Isa, panel: usize, x: &Activations, first: usize, rows: usize) {
        let mut sums = [[0.0; PANEL]; TILE];
        let sums = &mut sums[..rows];
        Panel::new(self.matrix, panel, x, first).dot(isa, sums);
        let (width, column) = (self.matrix.rows(), panel * PANEL);
        let used = PANEL.min(width - column);
        for (row, sums) in sums.iter().enumerate() {
            let start = (first + row) * width + column;
            // SAFETY: these columns of this row belong to the panel and the rows of this call.
            let out = unsafe { self.out.slice(start..start + used) };
            // All panels but the last are whole; knowing that, the compiler moves vectors.
            match <&mut [f32; PANEL]>::try_from(&mut *out) {
                Ok(whole) => put(whole, sums, self.add),
                Err(_) => put(out, &sums[..used], self.add),
            }
        }
    }
}

#[inline(always)]
fn put(out: &mut [f32], sums: &[f32], add: bool) {
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = if add { *out + sum } else { *sum };
    }
}

/// Runs the products, which share their input, as one region.
pub(crate) fn run(isa: Isa, pool: &mut Pool, x: &Activations, products: &[Product<'_>]) {
    let panels: usize = products.iter().map(|product| product.matrix.panels()).sum();
    if panels == 0 || x.rows() == 0 {
        return;
    }
    let pieces = pool.threads() * PIECES;
    let chunk = panels.div_ceil(pieces);
    let chunks = panels.div_ceil(chunk);
    // Rows are cut too when there are few panels for many threads.
    let block = x.rows().div_ceil(pieces.div_ceil(chunks)).next_multiple_of(TILE);
    let blocks = x.rows().div_ceil(block);
    pool.run(blocks * chunks, &|_, task| {
        let (rows, start) = (task / chunks * block, task % chunks * chunk);
        for first in (rows..x.rows().min(rows + block)).step_by(TILE) {
            for panel in start..panels.min(start + chunk) {
                let mut panel = panel;
                for product in products {
                    if panel < product.matrix.panels() {
                        // SAFETY: each pair of a panel and a block of rows is in one task.
                        unsafe { product.run(isa, panel, x, first, TILE.min(x.rows() - first)) };
                        break;
                    }
                    panel -= product.matrix.panels();
                }
            }
        }
    });
}
