//! A cursor over the header. It never reads beyond the file, and its errors say where and for what bytes were missing.

use super::{HEADER_BYTES_MAX, NAME_BYTES_MAX, STRING_BYTES_MAX};
use crate::error::TensorError;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// The whole file.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the next item starts.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes between here and the end of the file.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.offset) as u64
    }

    /// The next `len` bytes, which are `what` to the reader of an error message.
    pub(super) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], TensorError> {
        let left = self.bytes.len() - self.offset;
        let len = usize::try_from(len).ok().filter(|len| *len <= left).ok_or_else(|| {
            let reason = "the file is cut short or damaged; download it again";
            self.error(format!("{what} needs {len} bytes here, but only {left} are left: {reason}"))
        })?;
        let end = self.offset + len;
        if end > HEADER_BYTES_MAX {
            return Err(self.error(format!("with {what}, the header exceeds {HEADER_BYTES_MAX} bytes")));
        }
        let taken = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(taken)
    }

    /// The next `N` bytes, to be made into a number.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TensorError> {
        let taken = self.take(N as u64, what)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, TensorError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, TensorError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The number of `what` that follow, at most `max`.
    pub(super) fn count(&mut self, what: &str, max: u64) -> Result<usize, TensorError> {
        let offset = self.offset;
        let count = self.u64(&format!("the number of {what}"))?;
        usize::try_from(count).ok().filter(|_| count <= max).ok_or_else(|| {
            TensorError::format(offset, format!("{count} {what} are declared; at most {max} are allowed"))
        })
    }

    /// A key or a name.
    pub(super) fn name(&mut self, what: &str) -> Result<&'a str, TensorError> {
        self.text(what, NAME_BYTES_MAX)
    }

    /// A string of the metadata.
    pub(super) fn string(&mut self, what: &str) -> Result<&'a str, TensorError> {
        self.text(what, STRING_BYTES_MAX)
    }

    fn text(&mut self, what: &str, max: usize) -> Result<&'a str, TensorError> {
        let offset = self.offset;
        let len = self.u64(what)?;
        if len > max as u64 {
            let message = format!("{what} is declared to be {len} bytes long; at most {max} are allowed");
            return Err(TensorError::format(offset, message));
        }
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| TensorError::format(offset, format!("{what} is not UTF-8")))
    }

    /// An error at the next item.
    pub(super) fn error(&self, what: impl Into<String>) -> TensorError {
        TensorError::format(self.offset, what)
    }
}
