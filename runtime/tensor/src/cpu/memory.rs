//! Large buffers that start as zeros and cost no memory until they are written.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::error::TensorError;

/// Zeroed bytes, aligned to a page.
pub(crate) struct Memory(MmapMut);

impl Memory {
    /// `len` zeros, at least one. `what` names them in the error.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn zeroed(what: &'static str, len: usize) -> Result<Self, TensorError> {
        MmapMut::map_anon(len).map(Self).map_err(|_| TensorError::Allocation { what, bytes: len })
    }

    /// Asks for large pages, for memory that is written once as a whole and then read over and over.
    #[must_use]
    pub(crate) fn with_huge_pages(self) -> Self {
        #[cfg(target_os = "linux")]
        {
            // A system without large pages serves the small ones.
            let _ = self.0.advise(memmap2::Advice::HugePage);
        }
        self
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
