//! The GGUF container, versions 2 and 3, little-endian: typed metadata, a table of tensors, and their bytes.
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  entry count u64
//! entries:   key string, type u32, value                                  (see `value`, `metadata`)
//! tensors:   name string, dimensions u32, extents u64..., type u32, offset u64          (see `table`)
//! padding to the alignment (32, or the entry "general.alignment")
//! tensor data, at the offsets of the table, counted from here and each a multiple of the alignment
//! ```
//!
//! A string is a u64 length and that many bytes of UTF-8.
//!
//! Called by `pointsman-stage` and by the tokenizer builder. Files are untrusted: everything is checked when the file is
//! opened, and what the getters return needs no further check. Metadata are copied out of the file; tensor data are
//! borrowed from its mapping.

mod array;
mod identify;
mod metadata;
mod reader;
mod table;
mod value;
mod write;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

pub use array::{Numbers, Strings};
pub use metadata::Metadata;
pub use value::{Value, ValueType};
pub use write::GgufWriter;

use crate::error::TensorError;
use crate::weights::TensorView;
use reader::Reader;
use table::{Entry, Table};

/// Names and keys are shorter than this, in bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Metadata strings are at most this long: a chat template may be large.
const STRING_BYTES_MAX: usize = 16 << 20;
/// Everything before the tensor data. A vocabulary of 256 000 tokens with its merges takes about 15 MiB.
const HEADER_BYTES_MAX: usize = 64 << 20;
/// Metadata entries of a file.
const ENTRIES_MAX: u64 = 1 << 16;
/// Tensors of a file.
const TENSORS_MAX: u64 = 1 << 16;
/// Arrays of arrays: levels of them.
const ARRAY_DEPTH_MAX: usize = 4;
/// Alignment of tensor data where the file does not say.
const ALIGNMENT_DEFAULT: u32 = 32;
/// The metadata entry that does say.
const ALIGNMENT_KEY: &str = "general.alignment";

/// An open GGUF file: its metadata and its tensors.
pub struct Gguf {
    bytes: Bytes,
    metadata: Metadata,
    table: Table,
}

/// Where the file's bytes are.
enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Gguf {
    /// Maps a file into memory and parses its header; tensor data are not touched.
    ///
    /// The file must not be written to or cut short while it is open: a read beyond the new end would end the process.
    /// Replace a model file by renaming another over it.
    ///
    /// # Errors
    /// The file can not be read, or [`Gguf::parse`] refuses it; both name the file.
    pub fn open(path: &Path) -> Result<Self, TensorError> {
        let bytes = map(path).map_err(|source| TensorError::Io { path: path.into(), source })?;
        Self::new(Bytes::Mapped(bytes))
            .map_err(|source| TensorError::File { path: path.into(), source: Box::new(source) })
    }

    /// Parses a file that is in memory already.
    ///
    /// # Errors
    /// The bytes are not a GGUF file of version 2 or 3, are cut short or contradict themselves, hold a tensor of a type or
    /// shape that is not supported, or are one part of a model that is split over several files.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, TensorError> {
        Self::new(Bytes::Owned(bytes))
    }

    fn new(bytes: Bytes) -> Result<Self, TensorError> {
        let mut reader = Reader::new(&bytes);
        identify::check_magic(&mut reader)?;
        identify::check_version(&mut reader)?;
        let tensors = reader.count("tensors", TENSORS_MAX)?;
        let entries = reader.count("metadata entries", ENTRIES_MAX)?;
        let metadata = Metadata::parse(&mut reader, entries)?;
        check_whole(&metadata)?;
        let table = Table::parse(&mut reader, tensors, metadata.opt_u32(ALIGNMENT_KEY)?)?;
        Ok(Self { bytes, metadata, table })
    }

    /// The metadata entries.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// There is none; the message lists its nearest relatives.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, TensorError> {
        let entry = self.table.get(name).ok_or_else(|| self.table.missing(name))?;
        Ok(self.view(entry))
    }

    /// Whether there is a tensor of this name: for tensors that a model may do without.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.table.get(name).is_some()
    }

    /// All tensors, in the order of the file's table.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorView<'_>> {
        self.table.entries().iter().map(|entry| self.view(entry))
    }

    /// The names of all tensors, in the order of the file's table.
    pub fn tensor_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.table.entries().iter().map(|entry| &*entry.name)
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> TensorView<'a> {
        let &Entry { ref name, kind, rows, cols, ref range } = entry;
        TensorView { name, kind, rows, cols, data: &self.bytes[range.clone()] }
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gguf({} bytes, {} tensors)", self.bytes.len(), self.table.entries().len())
    }
}

fn map(path: &Path) -> io::Result<Mmap> {
    // Asked before the file is opened, since opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is private and read-only, and `open` asks that nobody changes the file meanwhile. Should it
    // happen, all offsets and lengths were copied out and checked at open, so that only the values of weights can change.
    unsafe { Mmap::map(&file) }
}

/// Refuses a part of a split model, whose other tensors would be found missing only later.
fn check_whole(metadata: &Metadata) -> Result<(), TensorError> {
    match metadata.opt_u32("split.count")? {
        None | Some(0 | 1) => Ok(()),
        Some(parts) => Err(TensorError::Unsupported(format!(
            "this is one of {parts} parts of a split model; merge them into one file first"
        ))),
    }
}
