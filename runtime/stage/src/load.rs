//! Takes a graph's tensors out of a file, one by one, and packs them for a device. Called by the `load` function of each
//! architecture.
//!
//! Invariant: after [`Loader::finish`], each tensor of the file has been taken exactly once and had the expected shape, so
//! no graph runs with a part of its model ignored.

use std::collections::BTreeSet;

use pointsman_tensor::backend::Backend;
use pointsman_tensor::weights::{Gguf, TensorView};

use crate::error::StageError;

/// Told the bytes done and the bytes in total, after each tensor.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The tensors of a file that are still to be taken.
pub(crate) struct Loader<'a, B: Backend> {
    gguf: &'a Gguf,
    backend: &'a B,
    progress: Progress<'a>,
    left: BTreeSet<&'a str>,
    bytes_done: u64,
    bytes_total: u64,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub(crate) fn new(gguf: &'a Gguf, backend: &'a B, progress: Progress<'a>) -> Self {
        let left = gguf.tensor_names().collect();
        let bytes_total = gguf.tensors().map(|tensor| tensor.data.len() as u64).sum();
        Self { gguf, backend, progress, left, bytes_done: 0, bytes_total }
    }

    /// Whether the file has this tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.gguf.has_tensor(name)
    }

    /// Packs a weight matrix.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Matrix, StageError> {
        let tensor = self.take(name, rows, cols)?;
        let matrix = self.backend.pack(&tensor)?;
        self.advance(&tensor);
        Ok(matrix)
    }

    /// Reads a vector.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, StageError> {
        let tensor = self.take(name, 1, len)?;
        let values = tensor.to_f32();
        self.advance(&tensor);
        Ok(values)
    }

    /// Ends the loading and tells how many bytes have been taken.
    ///
    /// # Errors
    /// A tensor is left over.
    pub(crate) fn finish(self, architecture: &'static str) -> Result<u64, StageError> {
        match self.left.first() {
            Some(name) => Err(StageError::UnusedTensor { name: (*name).into(), architecture }),
            None => Ok(self.bytes_done),
        }
    }

    fn take(&mut self, name: &str, rows: usize, cols: usize) -> Result<TensorView<'a>, StageError> {
        let tensor = self.gguf.tensor(name)?;
        let (expected, found) = ((rows, cols), (tensor.rows, tensor.cols));
        if expected != found {
            return Err(StageError::Shape { name: name.into(), expected, found });
        }
        self.left.remove(name);
        Ok(tensor)
    }

    fn advance(&mut self, tensor: &TensorView<'_>) {
        self.bytes_done += tensor.data.len() as u64;
        (self.progress)(self.bytes_done, self.bytes_total);
    }
}
