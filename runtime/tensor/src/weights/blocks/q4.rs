//! Q4_0 and Q4_1: 32 values of 4 bits, 18 and 20 bytes, 4.5 and 5 bits a value.
//!
//! ```text
//! byte   0    2                           18
//! Q4_0   | d  | n0 | n1 | ...       | n15 |             value = d * (q - 8)
//! byte   0    2    4                           20
//! Q4_1   | d  | m  | n0 | n1 | ...       | n15 |        value = d * q + m
//!
//! byte n[i]   bits 7..4: q of value i + 16    bits 3..0: q of value i
//! ```
//!
//! `d` and `m` are binary16. The two halves of a byte are 16 values apart, so that one mask and one shift of 16 bytes give
//! two runs of consecutive values.

use super::{bounds, code, extreme, inverse, scale, store_scale};

pub(super) fn decode_q4_0([d0, d1, nibbles @ ..]: &[u8; 18], out: &mut [f32; 32]) {
    let d = scale(*d0, *d1);
    for (i, q) in nibble_codes(nibbles).into_iter().enumerate() {
        out[i] = (f32::from(q) - 8.0) * d;
    }
}

pub(super) fn decode_q4_1([d0, d1, m0, m1, nibbles @ ..]: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (scale(*d0, *d1), scale(*m0, *m1));
    for (i, q) in nibble_codes(nibbles).into_iter().enumerate() {
        out[i] = f32::from(q) * d + m;
    }
}

pub(super) fn encode_q4_0(values: &[f32; 32]) -> [u8; 18] {
    // The value of largest magnitude becomes -8, the one code without a counterpart of the other sign.
    let (stored, d) = store_scale(extreme(values) / -8.0);
    let to_code = inverse(d);
    let mut block = [0; 18];
    block[..2].copy_from_slice(&stored);
    block[2..].copy_from_slice(&pack_nibbles(&values.map(|value| code(value * to_code + 8.0, 15))));
    block
}

pub(super) fn encode_q4_1(values: &[f32; 32]) -> [u8; 20] {
    let (low, high) = bounds(values);
    let ((stored_d, d), (stored_m, m)) = (store_scale((high - low) / 15.0), store_scale(low));
    let to_code = inverse(d);
    let mut block = [0; 20];
    block[..2].copy_from_slice(&stored_d);
    block[2..4].copy_from_slice(&stored_m);
    block[4..].copy_from_slice(&pack_nibbles(&values.map(|value| code((value - m) * to_code, 15))));
    block
}

/// The 32 lower nibbles' and upper nibbles' codes, in order of their values. Shared with the five-bit formats.
pub(super) fn nibble_codes(nibbles: &[u8; 16]) -> [u8; 32] {
    let mut codes = [0; 32];
    for (i, byte) in nibbles.iter().enumerate() {
        codes[i] = byte & 15;
        codes[i + 16] = byte >> 4;
    }
    codes
}

/// The reverse of [`nibble_codes`]; bits above the fourth are dropped.
pub(super) fn pack_nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| codes[i] & 15 | codes[i + 16] << 4)
}
