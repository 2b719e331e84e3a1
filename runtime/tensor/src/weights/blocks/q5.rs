//! Q5_0 and Q5_1: 32 values of 5 bits, 22 and 24 bytes, 5.5 and 6 bits a value.
//!
//! ```text
//! byte   0    2         6                           22
//! Q5_0   | d  | high    | n0 | n1 | ...       | n15 |             value = d * (q - 16)
//! byte   0    2    4         8                           24
//! Q5_1   | d  | m  | high    | n0 | n1 | ...       | n15 |        value = d * q + m
//!
//! byte n[i]   bits 7..4: lower four bits of q of value i + 16    bits 3..0: of value i
//! high        a 32-bit number whose bit i is the fifth bit of q of value i
//! ```
//!
//! `d` and `m` are binary16.

use super::q4::{nibble_codes, pack_nibbles};
use super::{bounds, code, extreme, inverse, scale, store_scale};

pub(super) fn decode_q5_0([d0, d1, rest @ ..]: &[u8; 22], out: &mut [f32; 32]) {
    let d = scale(*d0, *d1);
    for (i, q) in codes(rest).into_iter().enumerate() {
        out[i] = (f32::from(q) - 16.0) * d;
    }
}

pub(super) fn decode_q5_1([d0, d1, m0, m1, rest @ ..]: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (scale(*d0, *d1), scale(*m0, *m1));
    for (i, q) in codes(rest).into_iter().enumerate() {
        out[i] = f32::from(q) * d + m;
    }
}

pub(super) fn encode_q5_0(values: &[f32; 32]) -> [u8; 22] {
    let (stored, d) = store_scale(extreme(values) / -16.0);
    let to_code = inverse(d);
    let mut block = [0; 22];
    block[..2].copy_from_slice(&stored);
    block[2..].copy_from_slice(&pack(&values.map(|value| code(value * to_code + 16.0, 31))));
    block
}

pub(super) fn encode_q5_1(values: &[f32; 32]) -> [u8; 24] {
    let (low, high) = bounds(values);
    let ((stored_d, d), (stored_m, m)) = (store_scale((high - low) / 31.0), store_scale(low));
    let to_code = inverse(d);
    let mut block = [0; 24];
    block[..2].copy_from_slice(&stored_d);
    block[2..4].copy_from_slice(&stored_m);
    block[4..].copy_from_slice(&pack(&values.map(|value| code((value - m) * to_code, 31))));
    block
}

/// Codes `0..=31` from the fifth bits and the nibbles.
fn codes([h0, h1, h2, h3, nibbles @ ..]: &[u8; 20]) -> [u8; 32] {
    let high = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
    let mut codes = nibble_codes(nibbles);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((high >> i & 1) as u8) << 4;
    }
    codes
}

/// The reverse of [`codes`].
fn pack(codes: &[u8; 32]) -> [u8; 20] {
    let high = codes.iter().enumerate().fold(0, |high, (i, code)| high | u32::from(code >> 4 & 1) << i);
    let mut packed = [0; 20];
    packed[..4].copy_from_slice(&high.to_le_bytes());
    packed[4..].copy_from_slice(&pack_nibbles(codes));
    packed
}
