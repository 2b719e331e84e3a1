//! From the blocks of a file to the blocks of a panel.

use std::ops::Range;

use half::f16;

use super::{BLOCK, Codes, Format, Layout, ORDER, PANEL, Scales, for_layout};
use crate::weights::{TensorType, TensorView, unpack_k_scales};

/// 32 values of one row.
struct Piece {
    /// Bytes, signed where the format's are; or, for a format of nibbles, 16 bytes, each with the code of column `k` in its
    /// lower half and that of `k + 16` in the upper.
    codes: [u8; BLOCK],
    scales: Stored,
}

/// Scales as the panel stores them.
#[derive(Clone, Copy)]
enum Stored {
    /// d and m, binary16 as in the file: to convert them forth and back would take most of the time of packing.
    Halves([u8; 2], [u8; 2]),
    /// d and m, or d of both halves of the block.
    Floats(f32, f32),
}

/// Packs `rows` of a tensor into one panel of zeros. False if a scale or a value is not finite.
pub(super) fn panel(tensor: &TensorView<'_>, rows: Range<usize>, format: Format, out: &mut [u8]) -> bool {
    rows.enumerate().all(|(lane, row)| {
        let row = tensor.row(row);
        for_layout!(format, pack_row(tensor.kind, row, lane, out), float => pack_floats(float, row, lane, out))
    })
}

fn pack_row<F: Layout>(kind: TensorType, row: &[u8], lane: usize, out: &mut [u8]) -> bool {
    let pieces = kind.block_len() / BLOCK;
    let mut finite = true;
    let blocks = out.chunks_exact_mut(F::BYTES).enumerate();
    for (index, block) in blocks {
        let source = &row[index / pieces * kind.block_bytes()..][..kind.block_bytes()];
        let piece = read(kind, source, index % pieces);
        let (scales, codes) = block.split_at_mut(F::SCALES.bytes());
        finite &= put_scales::<F>(piece.scales, lane, scales);
        put_codes::<F>(&piece.codes, lane, codes);
    }
    finite
}

/// False if one is not finite.
#[inline]
fn put_scales<F: Layout>(scales: Stored, lane: usize, out: &mut [u8]) -> bool {
    match scales {
        Stored::Halves(d, m) => {
            out[2 * lane..][..2].copy_from_slice(&d);
            if F::SCALES == Scales::HalfAffine {
                out[2 * (PANEL + lane)..][..2].copy_from_slice(&m);
            }
            f16::from_le_bytes(d).is_finite() & f16::from_le_bytes(m).is_finite()
        }
        Stored::Floats(first, second) => {
            out[4 * lane..][..4].copy_from_slice(&first.to_le_bytes());
            out[4 * (PANEL + lane)..][..4].copy_from_slice(&second.to_le_bytes());
            first.is_finite() & second.is_finite()
        }
    }
}

#[inline]
fn put_codes<F: Layout>(codes: &[u8; BLOCK], lane: usize, out: &mut [u8]) {
    if F::CODES == Codes::Nibbles {
        for (word, group) in codes.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<{ 4 * PANEL }>().0) {
            group[4 * lane..][..4].copy_from_slice(word);
        }
    } else {
        for (pair, group) in ORDER.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<{ 2 * PANEL }>().0) {
            group[2 * lane..][..2].copy_from_slice(&pair.map(|column| codes[column]));
        }
    }
}

/// Piece `index` of a block. The formats are documented where they are decoded, in `weights/blocks`.
#[inline]
fn read(kind: TensorType, block: &[u8], index: usize) -> Piece {
    let raw = |at: usize| [block[at], block[at + 1]];
    let (codes, scales) = match kind {
        TensorType::Q4_0 => {
            let m = f16::from_f32(-8.0 * half(block, 0));
            (bytes(&block[2..18]), Stored::Halves(raw(0), m.to_le_bytes()))
        }
        TensorType::Q4_1 => (bytes(&block[4..20]), Stored::Halves(raw(0), raw(2))),
        TensorType::Q5_0 => {
            let codes = fifth_bits(nibbles(&block[6..]), &block[2..]);
            (codes.map(|q| q.wrapping_sub(16)), Stored::Halves(raw(0), [0; 2]))
        }
        TensorType::Q5_1 => {
            (fifth_bits(nibbles(&block[8..]), &block[4..]), Stored::Floats(half(block, 0), half(block, 2)))
        }
        TensorType::Q8_0 => (bytes(&block[2..34]), Stored::Halves(raw(0), [0; 2])),
        TensorType::Q4K => {
            let codes = k_nibbles(&block[16..], index);
            let pairs = std::array::from_fn(|k| if k < 16 { codes[k] | codes[k + 16] << 4 } else { 0 });
            (pairs, k_scale(block, index))
        }
        TensorType::Q5K => {
            let (codes, high) = (k_nibbles(&block[48..], index), &block[16..]);
            (std::array::from_fn(|k| codes[k] | (high[k] >> index & 1) << 4), k_scale(block, index))
        }
        TensorType::Q6K => six_bits(block, index),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => ([0; BLOCK], Stored::Floats(0.0, 0.0)),
    };
    Piece { codes, scales }
}

#[inline]
fn bytes(from: &[u8]) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    codes[..from.len()].copy_from_slice(from);
    codes
}

#[inline]
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[inline]
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|k| bytes[k % 16] >> (k / 16 * 4) & 15)
}

#[inline]
fn fifth_bits(codes: [u8; BLOCK], high: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|k| codes[k] | (high[k / 8] >> (k % 8) & 1) << 4)
}

/// d and m of group `g` of a Q4_K or Q5_K block.
fn k_scale(block: &[u8], g: usize) -> Stored {
    let (scale, min) = unpack_k_scales(&std::array::from_fn(|i| block[4 + i]))[g];
    Stored::Floats(half(block, 0) * f32::from(scale), -(half(block, 2) * f32::from(min)))
}

/// Lower four bits of group `g`: two groups share 32 bytes.
fn k_nibbles(low: &[u8], g: usize) -> [u8; BLOCK] {
    let bytes = &low[g / 2 * BLOCK..][..BLOCK];
    std::array::from_fn(|k| bytes[k] >> (g % 2 * 4) & 15)
}

fn six_bits(block: &[u8], index: usize) -> ([u8; BLOCK], Stored) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let (half_block, r) = (index / 4, index % 4);
    let low = &low[64 * half_block + 32 * (r % 2)..][..BLOCK];
    let high = &high[32 * half_block..][..BLOCK];
    let codes = std::array::from_fn(|k| {
        let q = low[k] >> (r / 2 * 4) & 15 | (high[k] >> (2 * r) & 3) << 4;
        q.wrapping_sub(32)
    });
    let d = half(block, 208);
    let scale = |i: usize| d * f32::from(scales[2 * index + i].cast_signed());
    (codes, Stored::Floats(scale(0), scale(1)))
}

fn pack_floats(format: Format, row: &[u8], lane: usize, out: &mut [u8]) -> bool {
    let size = if format == Format::F32 { 4 } else { 2 };
    for (value, column) in row.chunks_exact(size).zip(out.chunks_exact_mut(size * PANEL)) {
        column[size * lane..][..size].copy_from_slice(value);
    }
    (0..row.len() / size).all(|i| super::float_value(format, row, i).is_finite())
}
