//! A writer of GGUF version 3, in memory: for tests, which make tiny models with it, and for synthetic models.

use super::metadata::Metadata;
use super::value::{Value, ValueType};
use super::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY};
use crate::error::TensorError;
use crate::weights::tensor::tensor_bytes;
use crate::weights::{TensorType, TensorView, quantize_row};

/// Collects metadata and tensors, then writes them as one file.
///
/// ```
/// use pointsman_tensor::weights::{Gguf, GgufWriter, TensorType};
///
/// let mut writer = GgufWriter::default();
/// writer.metadata("general.architecture", "llama").metadata("llama.block_count", 2_u32);
/// writer.tensor_f32("output.weight", TensorType::Q8_0, 2, 32, &[0.5; 64])?;
/// let file = Gguf::parse(writer.finish())?;
/// assert_eq!(file.metadata().u32("llama.block_count")?, 2);
/// assert_eq!(file.tensor("output.weight")?.rows, 2);
/// # Ok::<(), pointsman_tensor::error::TensorError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    metadata: Metadata,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    kind: TensorType,
    rows: usize,
    cols: usize,
    data: Vec<u8>,
}

impl GgufWriter {
    /// Sets a metadata entry, in place of an earlier one with this key. `general.alignment`, a u32, is obeyed.
    pub fn metadata(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.metadata.set(key, value.into());
        self
    }

    /// Adds a tensor that is encoded already. It is written as a vector if it has one row.
    ///
    /// # Errors
    /// A name that is taken, or a shape or length that does not suit the type.
    pub fn tensor(
        &mut self,
        name: &str,
        kind: TensorType,
        rows: usize,
        cols: usize,
        data: Vec<u8>,
    ) -> Result<&mut Self, TensorError> {
        TensorView::new(name, kind, rows, cols, &data)?;
        if self.tensors.iter().any(|tensor| tensor.name == name) {
            return Err(TensorError::tensor(name, "occurs twice"));
        }
        self.tensors.push(Tensor { name: name.into(), kind, rows, cols, data });
        Ok(self)
    }

    /// Encodes `values`, `rows * cols` of them, and adds them as a tensor.
    ///
    /// # Errors
    /// As [`GgufWriter::tensor`].
    pub fn tensor_f32(
        &mut self,
        name: &str,
        kind: TensorType,
        rows: usize,
        cols: usize,
        values: &[f32],
    ) -> Result<&mut Self, TensorError> {
        // Whether rows are whole blocks is checked first, since the encoder relies on it.
        tensor_bytes(name, kind, rows, cols)?;
        if values.len() != rows * cols {
            let what = format!("has {} values, but [{rows}, {cols}] needs {}", values.len(), rows * cols);
            return Err(TensorError::tensor(name, what));
        }
        let mut data = Vec::new();
        quantize_row(kind, values, &mut data);
        self.tensor(name, kind, rows, cols, data)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let alignment = self.metadata.opt_u32(ALIGNMENT_KEY).ok().flatten().filter(|n| n.is_power_of_two());
        let alignment = alignment.unwrap_or(ALIGNMENT_DEFAULT) as usize;
        let mut out = b"GGUF".to_vec();
        put_u32(&mut out, 3);
        put_len(&mut out, self.tensors.len());
        put_len(&mut out, self.metadata.iter().len());
        for (key, value) in self.metadata.iter() {
            put_string(&mut out, key);
            put_u32(&mut out, value.kind() as u32);
            put_value(&mut out, value);
        }
        let mut offset = 0_usize;
        for Tensor { name, kind, rows, cols, data } in &self.tensors {
            let extents: &[usize] = if *rows == 1 { &[*cols] } else { &[*cols, *rows] };
            put_string(&mut out, name);
            put_u32(&mut out, extents.len() as u32);
            extents.iter().for_each(|extent| put_len(&mut out, *extent));
            put_u32(&mut out, kind.ggml_id());
            put_len(&mut out, offset);
            offset = (offset + data.len()).next_multiple_of(alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(alignment), 0);
            out.extend_from_slice(&tensor.data);
        }
        out
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// A length or count: 64 bits in the file.
fn put_len(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u64).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// A value without its type, as it also stands inside arrays.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I8(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U16(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I16(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::F32(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::U64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::I64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::F64(x) => out.extend_from_slice(&x.to_le_bytes()),
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::String(text) => put_string(out, text),
        Value::Numbers(array) => {
            put_array(out, array.kind(), array.len());
            out.extend_from_slice(array.bytes());
        }
        Value::Strings(array) => {
            put_array(out, ValueType::String, array.len());
            array.iter().for_each(|text| put_string(out, text));
        }
        Value::Arrays(arrays) => {
            put_array(out, ValueType::Array, arrays.len());
            arrays.iter().for_each(|array| put_value(out, array));
        }
    }
}

/// The head of an array.
fn put_array(out: &mut Vec<u8>, kind: ValueType, len: usize) {
    put_u32(out, kind as u32);
    put_len(out, len);
}
