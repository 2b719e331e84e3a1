//! The one error type of this crate. Raised while weights are opened and while a device prepares its buffers, never by a
//! kernel: once a matrix is packed and a store is allocated, running the model can not fail.

use std::io;
use std::path::PathBuf;

/// What can go wrong between a file of weights and a device that is ready to run.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    /// The operating system refused to open, inspect or map the file.
    #[error("can not read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Any other error, with the file in which it was found.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<TensorError>,
    },
    /// The bytes break the rules of the format.
    #[error("bad model file at byte {offset}: {what}")]
    Format {
        /// Where the offending item starts, counted from the start of the file.
        offset: usize,
        /// What was expected and what was found.
        what: String,
    },
    /// A metadata key is missing or holds something else than its reader needs.
    #[error("metadata key {key:?} {what}")]
    Metadata {
        /// The key.
        key: String,
        /// What is wrong with it, as a predicate: "is missing".
        what: String,
    },
    /// A tensor is missing, or has a type, shape, place or length that can not be right.
    #[error("tensor {name:?} {what}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong with it, as a predicate: "is missing".
        what: String,
    },
    /// Well formed, but nothing that this build or device runs.
    #[error("{0}")]
    Unsupported(String),
    /// The system has no memory left for a buffer.
    #[error("no memory for {what}: {bytes} bytes wanted")]
    Allocation {
        /// The buffer.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
}

impl TensorError {
    pub(crate) fn format(offset: usize, what: impl Into<String>) -> Self {
        Self::Format { offset, what: what.into() }
    }

    pub(crate) fn metadata(key: &str, what: impl Into<String>) -> Self {
        Self::Metadata { key: key.into(), what: what.into() }
    }

    pub(crate) fn tensor(name: &str, what: impl Into<String>) -> Self {
        Self::Tensor { name: name.into(), what: what.into() }
    }
}
