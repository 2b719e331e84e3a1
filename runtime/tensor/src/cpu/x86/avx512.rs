//! Panel products with AVX-512 VNNI: a panel fills a register, and `vpdpwssd` multiplies and adds in one step.
//!
//! The structure is that of [`super::avx2`]; sums of integers are exact, so results are the same.

use std::arch::x86_64::*;

use half::f16;

use crate::cpu::dot::Panel;
use crate::cpu::matrix::{BLOCK, Codes, Format, Layout, PANEL, Scales, for_layout};

/// Adds the products of a panel to `sums`, which has an element for each row of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn dot(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    for_layout!(panel.format, quantised(panel, sums), _float => floats(panel, sums));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantised<F: Layout>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    match sums {
        // With a known number of rows, the compiler keeps the sums in registers.
        [_] => tile::<F>(panel, &mut sums[..1]),
        _ => tile::<F>(panel, sums),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile<F: Layout>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    let cols = panel.activations.cols();
    let x = panel.activations.codes(panel.first).as_ptr();
    let s = panel.activations.scales(panel.first).as_ptr();
    for (index, block) in panel.weights.chunks_exact(F::BYTES).enumerate() {
        // SAFETY: a panel has as many blocks as each row of its activations has, and there are `sums.len()` rows
        // (`Panel::dot`), so scales and codes are read within the block, and activations within their row.
        unsafe {
            let codes = unpack::<F>(block.as_ptr().add(F::SCALES.bytes()));
            let (d, m) = scales::<F>(block.as_ptr());
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = x.add(row * cols + index * BLOCK);
                let [dx, s] = *s.add(row * (cols / BLOCK) + index);
                let dx = _mm512_set1_ps(dx);
                let [low, high] = isums(&codes, x);
                let mut acc = _mm512_loadu_ps(sums.as_ptr());
                if F::SCALES == Scales::Two {
                    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(low), acc);
                    acc = _mm512_fmadd_ps(_mm512_mul_ps(m, dx), _mm512_cvtepi32_ps(high), acc);
                } else {
                    let both = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
                    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), both, acc);
                }
                if F::CODES != Codes::Signed {
                    acc = _mm512_fmadd_ps(m, _mm512_set1_ps(s), acc);
                }
                _mm512_storeu_ps(sums.as_mut_ptr(), acc);
            }
        }
    }
}

/// Pairs of codes of the panel's rows, in the order of the activations.
///
/// # Safety
/// `codes` points to the codes of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn unpack<F: Layout>(codes: *const u8) -> [__m512i; 16] {
    let mask = _mm512_set1_epi16(15);
    let mut unpacked = [_mm512_setzero_si512(); 16];
    for (p, to) in unpacked.iter_mut().enumerate() {
        // SAFETY: by the caller's promise, for 4 words or 16 pairs of the panel.
        *to = unsafe {
            if F::CODES == Codes::Nibbles {
                let words = _mm512_loadu_si512(codes.add(64 * (p / 4)).cast());
                match p % 4 {
                    0 => _mm512_and_si512(words, mask),
                    1 => _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask),
                    2 => _mm512_and_si512(_mm512_srli_epi16::<8>(words), mask),
                    _ => _mm512_srli_epi16::<12>(words),
                }
            } else {
                _mm512_cvtepi8_epi16(_mm256_loadu_si256(codes.add(32 * p).cast()))
            }
        };
    }
    unpacked
}

/// Integer products of the first and of the second 16 columns.
///
/// # Safety
/// `x` points to 32 activations.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn isums(codes: &[__m512i; 16], x: *const i16) -> [__m512i; 2] {
    let mut sums = [_mm512_setzero_si512(); 2];
    for (p, codes) in codes.iter().enumerate() {
        // SAFETY: two of the 32 activations, at any address.
        let x = _mm512_set1_epi32(unsafe { x.add(2 * p).cast::<i32>().read_unaligned() });
        sums[p % 2] = _mm512_dpwssd_epi32(sums[p % 2], *codes, x);
    }
    sums
}

/// The two scales of a block; the second is zero where there is none.
///
/// # Safety
/// `block` points to a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn scales<F: Layout>(block: *const u8) -> (__m512, __m512) {
    // SAFETY: by the caller's promise, all loads are within the block's scales.
    unsafe {
        let halves = |from: usize| _mm512_cvtph_ps(_mm256_loadu_si256(block.cast::<f16>().add(from).cast()));
        let floats = |from: usize| _mm512_loadu_ps(block.cast::<f32>().add(from));
        match F::SCALES {
            Scales::Half => (halves(0), _mm512_setzero_ps()),
            Scales::HalfAffine => (halves(0), halves(PANEL)),
            Scales::Affine | Scales::Two => (floats(0), floats(PANEL)),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn floats(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    match panel.format {
        Format::F32 => float_rows::<4, false>(panel, sums),
        Format::BF16 => float_rows::<2, true>(panel, sums),
        _ => float_rows::<2, false>(panel, sums),
    }
}

/// Products with values of `SIZE` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn float_rows<const SIZE: usize, const BRAIN: bool>(panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
    let (eights, rest) = sums.as_chunks_mut::<8>();
    let done = panel.first + eights.len() * 8;
    for (i, sums) in eights.iter_mut().enumerate() {
        float_tile::<SIZE, BRAIN, 8>(panel, panel.first + i * 8, sums);
    }
    for (i, sums) in rest.iter_mut().enumerate() {
        float_tile::<SIZE, BRAIN, 1>(panel, done + i, std::array::from_mut(sums));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn float_tile<const SIZE: usize, const BRAIN: bool, const T: usize>(
    panel: &Panel<'_>,
    row: usize,
    sums: &mut [[f32; PANEL]; T],
) {
    let x: [*const f32; T] = std::array::from_fn(|t| panel.activations.float_row(row + t).as_ptr());
    let mut acc = [_mm512_setzero_ps(); T];
    for (k, column) in panel.weights.chunks_exact(SIZE * PANEL).enumerate() {
        // SAFETY: a panel has as many columns as each row of its activations has (`Panel::dot`).
        unsafe {
            let from = column.as_ptr();
            let w = match (SIZE, BRAIN) {
                (4, _) => _mm512_loadu_ps(from.cast()),
                (_, true) => {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
                (_, false) => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
            };
            for t in 0..T {
                acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(*x[t].add(k)), acc[t]);
            }
        }
    }
    for (sums, acc) in sums.iter_mut().zip(acc) {
        // SAFETY: 16 places.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), acc) };
    }
}
