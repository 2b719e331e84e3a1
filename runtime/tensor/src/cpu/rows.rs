//! Activations, and the means to let several threads write different parts of them.

use std::marker::PhantomData;
use std::ops::Range;

/// Activations `[count, width]`, row-major. Keeps its memory from one step to the next.
pub struct Rows {
    width: usize,
    count: usize,
    values: Vec<f32>,
}

impl Rows {
    /// No rows of this width.
    pub(super) fn new(width: usize) -> Self {
        Self { width, count: 0, values: Vec::new() }
    }

    /// Values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// All values, row after row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, to be written.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.width..][..self.width]
    }

    /// Changes the number of rows. Values stay where they are, new ones are zero.
    pub fn resize(&mut self, count: usize) {
        self.values.resize(count * self.width, 0.0);
        self.count = count;
    }
}

/// A slice whose parts are written by several tasks at once.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Parts` only hands out what `slice` promises not to overlap, as `&mut T` would move between threads.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: as for `&mut [T]`.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// The part `range`.
    ///
    /// # Panics
    /// If the range is not within the slice.
    ///
    /// # Safety
    /// No part that overlaps it is in use while the result is.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that parts in use do not overlap")]
    #[inline]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part outside its slice");
        // SAFETY: within the slice, which is borrowed mutably for 'a, and by the caller's promise not otherwise in use.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}
