//! Plain numbers: a "block" is one value.
//!
//! ```text
//! F32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm     4 bytes
//! F16   s eeeee mmmmmmmmmm                     2 bytes
//! BF16  s eeeeeeee mmmmmmm                     2 bytes: an F32 without its lower half
//! ```

use half::{bf16, f16};

pub(super) fn decode_f32(block: &[u8; 4], [out]: &mut [f32; 1]) {
    *out = f32::from_le_bytes(*block);
}

pub(super) fn decode_f16(block: &[u8; 2], [out]: &mut [f32; 1]) {
    *out = f16::from_le_bytes(*block).to_f32();
}

pub(super) fn decode_bf16(block: &[u8; 2], [out]: &mut [f32; 1]) {
    *out = bf16::from_le_bytes(*block).to_f32();
}

pub(super) fn encode_f32([value]: &[f32; 1]) -> [u8; 4] {
    value.to_le_bytes()
}

pub(super) fn encode_f16([value]: &[f32; 1]) -> [u8; 2] {
    f16::from_f32(*value).to_le_bytes()
}

pub(super) fn encode_bf16([value]: &[f32; 1]) -> [u8; 2] {
    bf16::from_f32(*value).to_le_bytes()
}
