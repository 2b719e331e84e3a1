//! Products of one panel of a matrix with rows of activations: what they must compute, in plain Rust.
//!
//! The order of operations of each output is part of the contract. For quantised weights, block after block:
//!
//! ```text
//! isum = sum of codes[k] * activation codes[k]         in integers, so exact and free to be reordered
//! acc  = fma(d * dx, isum as f32, acc)                 d, m: the weights' scale and offset
//! acc  = fma(m, s, acc)                                dx, s: the activations' scale, and dx * sum of their codes
//! ```
//!
//! (with two scales in a block, the first line and a second one for each half; without m, not the third). For floats:
//! `acc = fma(w[k], x[k], acc)`, column after column. [`super::x86`] does the same with vectors over the panel's rows.

use super::activations::Activations;
use super::matrix::{
    BLOCK, Codes, Format, Layout, Matrix, PANEL, PLACE, Scales, codes_of, float_value, for_layout, scales_of,
};
use super::simd::Isa;

/// Rows of activations that are multiplied with a panel at once, at most: enough to make unpacking its codes cheap, few
/// enough to stay in a first-level cache while panels pass by.
pub(crate) const TILE: usize = 16;

/// A panel, and the first of the rows of activations that it is multiplied with.
pub(crate) struct Panel<'a> {
    pub(super) format: Format,
    pub(super) weights: &'a [u8],
    pub(super) activations: &'a Activations,
    pub(super) first: usize,
}

impl<'a> Panel<'a> {
    pub(crate) fn new(matrix: &'a Matrix, panel: usize, activations: &'a Activations, first: usize) -> Self {
        assert_eq!(matrix.cols(), activations.cols(), "the input has another width than the matrix");
        Self { format: matrix.format(), weights: matrix.panel(panel), activations, first }
    }

    /// The products of the 16 rows of the panel with as many rows of activations as `sums`, which is zero, has.
    #[inline]
    pub(crate) fn dot(&self, isa: Isa, sums: &mut [[f32; PANEL]]) {
        // The kernels follow pointers, and rely on this and on the equal widths.
        let x = self.activations;
        let rows = if self.format.is_quantised() { x.quantised_rows() } else { x.float_rows() };
        assert!(self.first + sums.len() <= rows, "rows beyond the activations");
        match isa {
            Isa::Reference => for_layout!(self.format, quantised(self, sums), _float => floats(self, sums)),
            Isa::Avx2(isa) => isa.dot(self, sums),
            Isa::Avx512(isa) => isa.dot(self, sums),
        }
    }
}

fn quantised<F: Layout>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    let mut codes = [[0; BLOCK]; PANEL];
    for (index, block) in panel.weights.chunks_exact(F::BYTES).enumerate() {
        for (lane, codes) in codes.iter_mut().enumerate() {
            *codes = codes_of::<F>(block, lane);
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let (x, [dx, s]) = panel.activations.block(panel.first + row, index);
            for (lane, (acc, codes)) in sums.iter_mut().zip(&codes).enumerate() {
                let (d, m) = scales_of::<F>(block, lane);
                let products: [i32; BLOCK] = std::array::from_fn(|k| codes[k] * i32::from(x[PLACE[k]]));
                let halves: [i32; 2] = std::array::from_fn(|i| products[16 * i..][..16].iter().sum());
                if F::SCALES == Scales::Two {
                    *acc = (d[0] * dx).mul_add(halves[0] as f32, *acc);
                    *acc = (d[1] * dx).mul_add(halves[1] as f32, *acc);
                } else {
                    *acc = (d[0] * dx).mul_add((halves[0] + halves[1]) as f32, *acc);
                }
                if F::CODES != Codes::Signed {
                    *acc = m.mul_add(s, *acc);
                }
            }
        }
    }
}

fn floats(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    for (row, sums) in sums.iter_mut().enumerate() {
        for (k, x) in panel.activations.float_row(panel.first + row).iter().enumerate() {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = float_value(panel.format, panel.weights, k * PANEL + lane).mul_add(*x, *sum);
            }
        }
    }
}
