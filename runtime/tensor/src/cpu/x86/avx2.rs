//! Panel products with AVX2: a lane is a row of the panel, so half a panel fills a register.
//!
//! Two columns of eight rows make a register of 16-bit codes; `vpmaddwd` multiplies them with two activations in every lane
//! and adds the pairs in 32 bits. A block is unpacked once for [`SHARE`] rows of activations.

use std::arch::asm;
use std::arch::x86_64::*;

use half::f16;

use crate::cpu::dot::Panel;
use crate::cpu::matrix::{BLOCK, Codes, Format, Layout, PANEL, Scales, for_layout};

/// Rows of half a panel.
const HALF: usize = PANEL / 2;
/// Rows of activations that share an unpacked block: as many as the registers hold sums of.
const SHARE: usize = 4;

/// Adds the products of a panel to `sums`, which has an element for each row of activations.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    for_layout!(panel.format, quantised(panel, sums), _float => floats(panel, sums));
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantised<F: Layout>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    match sums {
        // With a known number of rows, the compiler keeps the sums in registers.
        [_] => strip::<F>(panel, &mut sums[..1]),
        _ => strip::<F>(panel, sums),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn strip<F: Layout>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    let (cols, first) = (panel.activations.cols(), panel.first);
    let (x, s) = (panel.activations.codes(first).as_ptr(), panel.activations.scales(first).as_ptr());
    for (index, block) in panel.weights.chunks_exact(F::BYTES).enumerate() {
        // SAFETY: a panel has as many blocks as each row of its activations has, and there are `sums.len()` rows
        // (`Panel::dot`), so scales and codes are read within the block, and activations within their row.
        unsafe {
            let input = Input { x: x.add(index * BLOCK), s: s.add(index), cols };
            for half in [0, HALF] {
                let (tiles, rest) = sums.as_chunks_mut::<SHARE>();
                let mut input = input;
                for sums in tiles {
                    tile::<F, SHARE>(block.as_ptr(), half, input, sums);
                    input = input.after(SHARE);
                }
                for sums in rest {
                    tile::<F, 1>(block.as_ptr(), half, input, std::array::from_mut(sums));
                    input = input.after(1);
                }
            }
        }
    }
}

/// A block of activations: codes, and dx and s, of a row; those of the next row lie `cols` and `cols / 32` further.
#[derive(Clone, Copy)]
struct Input {
    x: *const i16,
    s: *const [f32; 2],
    cols: usize,
}

impl Input {
    /// The row `rows` further; it need not exist until it is read.
    #[inline(always)]
    fn after(self, rows: usize) -> Self {
        let (x, s) = (self.x.wrapping_add(rows * self.cols), self.s.wrapping_add(rows * (self.cols / BLOCK)));
        Self { x, s, ..self }
    }
}

/// Adds the products of half a block with `T` rows to their sums.
///
/// # Safety
/// `block` points to a block, `half` is 0 or 8, and each input to 32 codes and to a pair of scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: Layout, const T: usize>(block: *const u8, half: usize, input: Input, sums: &mut [[f32; PANEL]; T]) {
    // SAFETY: by the caller's promise.
    unsafe {
        let isums = isums::<F, T>(block.add(F::SCALES.bytes()), half, input);
        let (d, m) = scales::<F>(block, half);
        for t in 0..T {
            let [dx, s] = &*input.after(t).s;
            let dx = _mm256_broadcast_ss(dx);
            let sums = sums[t].as_mut_ptr().add(half);
            let mut acc = _mm256_loadu_ps(sums);
            acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(isums[0][t]), acc);
            if F::SCALES == Scales::Two {
                acc = _mm256_fmadd_ps(_mm256_mul_ps(m, dx), _mm256_cvtepi32_ps(isums[1][t]), acc);
            } else if F::CODES != Codes::Signed {
                acc = _mm256_fmadd_ps(m, _mm256_broadcast_ss(s), acc);
            }
            _mm256_storeu_ps(sums, acc);
        }
    }
}

/// Integer products with `T` rows: of all columns; or, where the halves of a block have scales of their own, of the first
/// and of the second 16 columns.
///
/// # Safety
/// `codes` points to the codes of a block, `half` is 0 or 8, and each of `x` points to 32 activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn isums<F: Layout, const T: usize>(codes: *const u8, half: usize, input: Input) -> [[__m256i; T]; 2] {
    let mut sums = [[_mm256_setzero_si256(); T]; 2];
    for g in 0..4 {
        // SAFETY: by the caller's promise, all of a word or of four pairs of eight rows.
        let pairs = unsafe { unpack::<F>(codes, half, g) };
        for (j, pair) in pairs.into_iter().enumerate() {
            let part = if F::SCALES == Scales::Two { j % 2 } else { 0 };
            for (t, sum) in sums[part].iter_mut().enumerate() {
                // SAFETY: two of the 32 activations, at any address.
                let x = unsafe { input.after(t).x.add(8 * g + 2 * j).cast::<i32>().read_unaligned() };
                let products = _mm256_madd_epi16(pair, _mm256_set1_epi32(x));
                *sum = _mm256_add_epi32(*sum, products);
            }
        }
        if T > 1 {
            keep_order(if F::SCALES == Scales::Two { sums.as_flattened_mut() } else { &mut sums[0] });
        }
    }
    sums
}

/// Gives back what it takes, without an instruction. The compiler can neither merge sums across this point nor move them
/// past each other, and so works on all rows in turn. Left alone it finishes one row before the next, and the processor
/// waits for chains of dependent additions: the products take half as long again.
#[inline]
#[target_feature(enable = "avx2")]
fn keep_order(sums: &mut [__m256i]) {
    for sum in sums {
        // SAFETY: the text of the assembly is a comment.
        unsafe { asm!("/* {0} */", inout(ymm_reg) * sum, options(nomem, nostack, preserves_flags)) };
    }
}

/// Pairs `4g .. 4g + 4` of a block, for eight rows.
///
/// # Safety
/// As for [`isums`]; `g` is below 4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<F: Layout>(codes: *const u8, half: usize, g: usize) -> [__m256i; 4] {
    let mask = _mm256_set1_epi16(15);
    // SAFETY: by the caller's promise.
    unsafe {
        if F::CODES == Codes::Nibbles {
            let words = _mm256_loadu_si256(codes.add(64 * g + 4 * half).cast());
            return [
                _mm256_and_si256(words, mask),
                _mm256_and_si256(_mm256_srli_epi16::<4>(words), mask),
                _mm256_and_si256(_mm256_srli_epi16::<8>(words), mask),
                _mm256_srli_epi16::<12>(words),
            ];
        }
        let pair = |j: usize| _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.add(32 * (4 * g + j) + 2 * half).cast()));
        [pair(0), pair(1), pair(2), pair(3)]
    }
}

/// The two scales of rows `first ..` of a block; the second is zero where there is none.
///
/// # Safety
/// `block` points to a block, and `first` is 0 or 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales<F: Layout>(block: *const u8, first: usize) -> (__m256, __m256) {
    // SAFETY: by the caller's promise, all loads are within the block's scales.
    unsafe {
        let halves = |from: usize| _mm256_cvtph_ps(_mm_loadu_si128(block.cast::<f16>().add(from).cast()));
        let floats = |from: usize| _mm256_loadu_ps(block.cast::<f32>().add(from));
        match F::SCALES {
            Scales::Half => (halves(first), _mm256_setzero_ps()),
            Scales::HalfAffine => (halves(first), halves(PANEL + first)),
            Scales::Affine | Scales::Two => (floats(first), floats(PANEL + first)),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn floats(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    match panel.format {
        Format::F32 => float_rows::<4, false>(panel, sums),
        Format::BF16 => float_rows::<2, true>(panel, sums),
        _ => float_rows::<2, false>(panel, sums),
    }
}

/// Products with values of `SIZE` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
fn float_rows<const SIZE: usize, const BRAIN: bool>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    let (fours, rest) = sums.as_chunks_mut::<4>();
    let done = panel.first + fours.len() * 4;
    for (i, sums) in fours.iter_mut().enumerate() {
        float_tile::<SIZE, BRAIN, 4>(panel, panel.first + i * 4, sums);
    }
    for (i, sums) in rest.iter_mut().enumerate() {
        float_tile::<SIZE, BRAIN, 1>(panel, done + i, std::array::from_mut(sums));
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn float_tile<const SIZE: usize, const BRAIN: bool, const T: usize>(
    panel: &Panel<'_>,
    row: usize,
    sums: &mut [[f32; PANEL]; T],
) {
    let x: [*const f32; T] = std::array::from_fn(|t| panel.activations.float_row(row + t).as_ptr());
    let mut acc = [[_mm256_setzero_ps(); 2]; T];
    for (k, column) in panel.weights.chunks_exact(SIZE * PANEL).enumerate() {
        // SAFETY: a panel has as many columns as each row of its activations has (`Panel::dot`).
        unsafe {
            let w = [0, 1].map(|half| {
                let from = column.as_ptr().add(half * SIZE * HALF);
                match (SIZE, BRAIN) {
                    (4, _) => _mm256_loadu_ps(from.cast()),
                    (_, true) => {
                        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                    }
                    (_, false) => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                }
            });
            for t in 0..T {
                let x = _mm256_broadcast_ss(&*x[t].add(k));
                acc[t] = [_mm256_fmadd_ps(w[0], x, acc[t][0]), _mm256_fmadd_ps(w[1], x, acc[t][1])];
            }
        }
    }
    for (sums, acc) in sums.iter_mut().zip(acc) {
        // SAFETY: two times 8 of 16 places.
        unsafe {
            _mm256_storeu_ps(sums.as_mut_ptr(), acc[0]);
            _mm256_storeu_ps(sums.as_mut_ptr().add(HALF), acc[1]);
        }
    }
}
