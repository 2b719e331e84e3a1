//! Q8_0: 32 values of 8 bits, 34 bytes, 8.5 bits a value.
//!
//! ```text
//! byte   0      2                        34
//!        | d    | q0 | q1 | ...  | q31   |      d: binary16, q: signed byte
//! value i = d * q[i]
//! ```

use super::{extreme, inverse, scale, store_scale};

pub(super) fn decode_q8_0([d0, d1, codes @ ..]: &[u8; 34], out: &mut [f32; 32]) {
    let d = scale(*d0, *d1);
    for (value, code) in out.iter_mut().zip(codes) {
        *value = f32::from(code.cast_signed()) * d;
    }
}

pub(super) fn encode_q8_0(values: &[f32; 32]) -> [u8; 34] {
    let (stored, d) = store_scale(extreme(values).abs() / 127.0);
    let to_code = inverse(d);
    let mut block = [0; 34];
    block[..2].copy_from_slice(&stored);
    for (code, value) in block[2..].iter_mut().zip(values) {
        *code = ((value * to_code).round() as i8).cast_unsigned();
    }
    block
}
