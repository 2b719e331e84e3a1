//! Block formats: the bytes of a row to f32 values and back, one file for each family of formats.
//!
//! Called by [`TensorView::to_f32`](crate::weights::TensorView::to_f32), by devices that embed tokens or repack weights,
//! and by writers of model files. This is the reference that faster kernels are tested against: each value is one
//! expression over its block, in the order of operations that GGML's own reference has, so results agree bit for bit.
//!
//! All formats are little-endian and have no padding. A scale is a binary16 number; "q" is a stored unsigned or signed
//! integer. Encoders round to nearest and do not search for better scales: they are for tests and for synthetic models.

mod float;
mod k;
mod q4;
mod q5;
mod q8;

use half::f16;

pub use k::unpack_k_scales;

use super::TensorType;

/// Decodes whole blocks of `kind`.
///
/// # Panics
/// If `out` is not exactly as long as the values that `row` holds.
pub fn dequantize_row(kind: TensorType, row: &[u8], out: &mut [f32]) {
    match kind {
        TensorType::F32 => decode_each(row, out, float::decode_f32),
        TensorType::F16 => decode_each(row, out, float::decode_f16),
        TensorType::BF16 => decode_each(row, out, float::decode_bf16),
        TensorType::Q4_0 => decode_each(row, out, q4::decode_q4_0),
        TensorType::Q4_1 => decode_each(row, out, q4::decode_q4_1),
        TensorType::Q5_0 => decode_each(row, out, q5::decode_q5_0),
        TensorType::Q5_1 => decode_each(row, out, q5::decode_q5_1),
        TensorType::Q8_0 => decode_each(row, out, q8::decode_q8_0),
        TensorType::Q4K => decode_each(row, out, k::decode_q4_k),
        TensorType::Q5K => decode_each(row, out, k::decode_q5_k),
        TensorType::Q6K => decode_each(row, out, k::decode_q6_k),
    }
}

/// Appends `values`, encoded as whole blocks of `kind`, to `out`. Values are finite and within the range of binary16
/// (for `F32` and `BF16`: any); others give a valid block with unspecified values.
///
/// # Panics
/// If the number of values is not a multiple of the block length.
pub fn quantize_row(kind: TensorType, values: &[f32], out: &mut Vec<u8>) {
    match kind {
        TensorType::F32 => encode_each(values, out, float::encode_f32),
        TensorType::F16 => encode_each(values, out, float::encode_f16),
        TensorType::BF16 => encode_each(values, out, float::encode_bf16),
        TensorType::Q4_0 => encode_each(values, out, q4::encode_q4_0),
        TensorType::Q4_1 => encode_each(values, out, q4::encode_q4_1),
        TensorType::Q5_0 => encode_each(values, out, q5::encode_q5_0),
        TensorType::Q5_1 => encode_each(values, out, q5::encode_q5_1),
        TensorType::Q8_0 => encode_each(values, out, q8::encode_q8_0),
        TensorType::Q4K => encode_each(values, out, k::encode_q4_k),
        TensorType::Q5K => encode_each(values, out, k::encode_q5_k),
        TensorType::Q6K => encode_each(values, out, k::encode_q6_k),
    }
}

fn decode_each<const BYTES: usize, const LEN: usize>(
    row: &[u8],
    out: &mut [f32],
    decode: fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, cut) = row.as_chunks::<BYTES>();
    let room = out.len();
    let (values, rest) = out.as_chunks_mut::<LEN>();
    assert!(
        cut.is_empty() && rest.is_empty() && blocks.len() == values.len(),
        "{} bytes in blocks of {BYTES} do not hold {room} values in blocks of {LEN}",
        row.len()
    );
    for (block, values) in blocks.iter().zip(values) {
        decode(block, values);
    }
}

fn encode_each<const BYTES: usize, const LEN: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
    encode: fn(&[f32; LEN]) -> [u8; BYTES],
) {
    let (blocks, rest) = values.as_chunks::<LEN>();
    assert!(rest.is_empty(), "{} values are not whole blocks of {LEN}", values.len());
    out.reserve(blocks.len() * BYTES);
    for block in blocks {
        out.extend_from_slice(&encode(block));
    }
}

/// The binary16 number in two bytes of a block.
fn scale(low: u8, high: u8) -> f32 {
    f16::from_le_bytes([low, high]).to_f32()
}

/// A scale as it will be stored, and as the decoder will see it: codes are chosen for the latter.
fn store_scale(value: f32) -> ([u8; 2], f32) {
    let stored = f16::from_f32(value);
    (stored.to_le_bytes(), stored.to_f32())
}

/// Factor that brings a value to code units; a scale of zero stores only zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { scale.recip() }
}

/// The value of largest magnitude, with its sign.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, value| if value.abs() > most.abs() { *value } else { most })
}

/// The smallest and the largest value.
fn bounds(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// The nearest code in `0..=top`. Casts saturate, and turn a NaN into zero.
fn code(value: f32, top: u8) -> u8 {
    (value.round() as u8).min(top)
}
