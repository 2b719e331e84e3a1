//! Weights as they lie in a file: block formats, tensors, and the GGUF container.
//!
//! Called by `pointsman-stage`, which finds a model's tensors in a [`Gguf`], and by devices, which repack each
//! [`TensorView`] into their own layout.
//!
//! Invariant: what leaves this module is checked. A `TensorView` has a known type, a sensible shape and exactly the bytes
//! that they imply; a metadata getter returns the type that was asked for. No count, length or offset of a file is used
//! or allocated before it is compared with the file's length.

mod blocks;
pub mod gguf;
mod tensor;

pub use blocks::{dequantize_row, quantize_row, unpack_k_scales};
pub use gguf::{Gguf, GgufWriter, Metadata, Value};
pub use tensor::{TensorType, TensorView};
