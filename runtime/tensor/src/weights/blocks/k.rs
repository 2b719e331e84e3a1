//! Q4_K, Q5_K and Q6_K: 256 values in groups, whose scales are themselves quantised against those of the block.
//!
//! ```text
//! byte   0    2       4        16                                144
//! Q4_K   | d  | dmin  | scales | low[128]                        |           4.5 bits a value
//! byte   0    2       4        16          48                            176
//! Q5_K   | d  | dmin  | scales | high[32]  | low[128]                    |   5.5 bits a value
//! byte   0            128          192           208  210
//! Q6_K   | low[128]   | high[64]   | scale[16]   | d  |                      6.5625 bits a value
//! ```
//!
//! **Q4_K, Q5_K**: 8 groups of 32 values, `value = d * scale[g] * q - dmin * min[g]`, where `d` and `dmin` are binary16 and
//! each scale and min has 6 bits. Groups `2p` and `2p + 1` share the 32 bytes from `low[32 * p]`: the even group has their
//! lower nibbles, the odd one the upper. In Q5_K, bit `g` of `high[i]` is the fifth bit of value `i` of group `g`.
//!
//! The 12 bytes of `scales`, where s0 and m0 are the scale and min of group 0:
//!
//! ```text
//!            bits 7..6      bits 5..0                       bits 7..4      bits 3..0
//! byte g     s[g+4] 5..4    s[g]              byte 8 + g    m[g+4] 3..0    s[g+4] 3..0      for g in 0..4
//! byte g+4   m[g+4] 5..4    m[g]
//! ```
//!
//! **Q6_K**: 16 groups of 16 values, `value = d * scale[g] * (q - 32)`, with signed bytes as scales. Each half of the block,
//! 128 values, owns 64 bytes of `low` and 32 of `high`; its value `v = 32 * r + i` (`r` in 0..4, `i` in 0..32) has
//!
//! ```text
//! q bits 3..0   low[32 * (r % 2) + i], lower nibble if r < 2, else the upper
//! q bits 5..4   high[i], bits 2r + 1 and 2r
//! ```

use super::{bounds, code, extreme, inverse, scale, store_scale};

/// Scale and minimum, `0..=63` each, of the 8 groups of a Q4_K or Q5_K block, from its bytes `4..16`.
#[must_use]
pub fn unpack_k_scales(scales: &[u8; 12]) -> [(u8, u8); 8] {
    std::array::from_fn(|g| match g.checked_sub(4) {
        None => (scales[g] & 63, scales[g + 4] & 63),
        Some(h) => (scales[8 + h] & 15 | scales[h] >> 6 << 4, scales[8 + h] >> 4 | scales[h + 4] >> 6 << 4),
    })
}

/// The reverse of [`unpack_k_scales`].
fn pack_k_scales(groups: &[(u8, u8); 8]) -> [u8; 12] {
    let mut scales = [0; 12];
    for g in 0..4 {
        let ((scale, min), (late_scale, late_min)) = (groups[g], groups[g + 4]);
        scales[g] = scale | late_scale >> 4 << 6;
        scales[g + 4] = min | late_min >> 4 << 6;
        scales[g + 8] = late_scale & 15 | late_min << 4;
    }
    scales
}

pub(super) fn decode_q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let low = &block[16..];
    decode_groups(block, out, |g, i| low[32 * (g / 2) + i] >> (4 * (g % 2)) & 15);
}

pub(super) fn decode_q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (high, low) = block[16..].split_at(32);
    decode_groups(block, out, |g, i| low[32 * (g / 2) + i] >> (4 * (g % 2)) & 15 | (high[i] >> g & 1) << 4);
}

pub(super) fn decode_q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, rest) = block.split_at(128);
    let (high, scales) = rest.split_at(64);
    let d = scale(block[208], block[209]);
    for (v, value) in out.iter_mut().enumerate() {
        let (half, r, i) = (v / 128, v % 128 / 32, v % 32);
        let low_bits = low[64 * half + 32 * (r % 2) + i] >> (4 * (r / 2)) & 15;
        let high_bits = high[32 * half + i] >> (2 * r) & 3;
        let q = f32::from(low_bits | high_bits << 4) - 32.0;
        *value = d * f32::from(scales[v / 16].cast_signed()) * q;
    }
}

pub(super) fn encode_q4_k(values: &[f32; 256]) -> [u8; 144] {
    let (header, codes) = encode_groups(values, 15);
    let mut block = [0; 144];
    block[..16].copy_from_slice(&header);
    block[16..].copy_from_slice(&pack_low(&codes));
    block
}

pub(super) fn encode_q5_k(values: &[f32; 256]) -> [u8; 176] {
    let (header, codes) = encode_groups(values, 31);
    let mut block = [0; 176];
    block[..16].copy_from_slice(&header);
    for (v, code) in codes.iter().enumerate() {
        block[16 + v % 32] |= (code >> 4) << (v / 32);
    }
    block[48..].copy_from_slice(&pack_low(&codes));
    block
}

pub(super) fn encode_q6_k(values: &[f32; 256]) -> [u8; 210] {
    // As in Q4_0, the extreme of a group becomes its lowest code, -32; the largest scale becomes -128.
    let (groups, _) = values.as_chunks::<16>();
    let wanted: Vec<f32> = groups.iter().map(|group| extreme(group) / -32.0).collect();
    let (stored, d) = store_scale(extreme(&wanted) / -128.0);
    let mut block = [0; 210];
    block[208..].copy_from_slice(&stored);
    for (g, group) in groups.iter().enumerate() {
        let group_scale = (wanted[g] * inverse(d)).round() as i8;
        block[192 + g] = group_scale.cast_unsigned();
        let to_code = inverse(d * f32::from(group_scale));
        for (i, value) in group.iter().enumerate() {
            let q = code(value * to_code + 32.0, 63);
            let v = 16 * g + i;
            let (half, r, i) = (v / 128, v % 128 / 32, v % 32);
            block[64 * half + 32 * (r % 2) + i] |= (q & 15) << (4 * (r / 2));
            block[128 + 32 * half + i] |= (q >> 4) << (2 * r);
        }
    }
    block
}

/// Decodes a block with the header of Q4_K and Q5_K, whose value `i` of group `g` has the code `code(g, i)`.
fn decode_groups(block: &[u8], out: &mut [f32; 256], code: impl Fn(usize, usize) -> u8) {
    let (d, dmin) = (scale(block[0], block[1]), scale(block[2], block[3]));
    let groups = unpack_k_scales(&std::array::from_fn(|i| block[4 + i]));
    for (g, (group, values)) in groups.into_iter().zip(out.as_chunks_mut::<32>().0).enumerate() {
        let (d, min) = (d * f32::from(group.0), dmin * f32::from(group.1));
        for (i, value) in values.iter_mut().enumerate() {
            *value = d * f32::from(code(g, i)) - min;
        }
    }
}

/// Header and codes `0..=top` of a Q4_K or Q5_K block.
fn encode_groups(values: &[f32; 256], top: u8) -> ([u8; 16], [u8; 256]) {
    let (groups, _) = values.as_chunks::<32>();
    // A group's minimum is subtracted and has no sign, so a group that lies above zero keeps zero as its lowest value.
    let wanted = std::array::from_fn::<_, 8, _>(|g| {
        let (low, high) = bounds(&groups[g]);
        let low = low.min(0.0);
        ((high - low) / f32::from(top), -low)
    });
    let (stored_d, d) = store_scale(bounds(&wanted.map(|group| group.0)).1 / 63.0);
    let (stored_dmin, dmin) = store_scale(bounds(&wanted.map(|group| group.1)).1 / 63.0);
    let scales = wanted.map(|(scale, min)| (code(scale * inverse(d), 63), code(min * inverse(dmin), 63)));
    let mut header = [0; 16];
    header[..2].copy_from_slice(&stored_d);
    header[2..4].copy_from_slice(&stored_dmin);
    header[4..].copy_from_slice(&pack_k_scales(&scales));
    let codes = std::array::from_fn(|v| {
        let (scale, min) = scales[v / 32];
        code((values[v] + dmin * f32::from(min)) * inverse(d * f32::from(scale)), top)
    });
    (header, codes)
}

/// The lower four bits of the codes of Q4_K and Q5_K.
fn pack_low(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|b| {
        let even = 64 * (b / 32) + b % 32;
        codes[even] & 15 | codes[even + 32] << 4
    })
}
