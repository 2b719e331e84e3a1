//! The table of tensors: which there are, and which bytes of the file are theirs.
//!
//! Invariant of a parsed table: names differ; ranges are inside the file, do not overlap, start at multiples of the
//! alignment, and are as long as type and shape imply.

use std::ops::Range;

use super::reader::Reader;
use super::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY};
use crate::error::TensorError;
use crate::weights::TensorType;
use crate::weights::tensor::tensor_bytes;

/// Extents that a tensor may have in the file; at most two of them, the first among them, are not 1.
const DIMENSIONS_MAX: u32 = 4;
/// Relatives that the message about a missing tensor lists.
const RELATIVES_MAX: usize = 8;

/// A tensor of the table.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: TensorType,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Its bytes, counted from the start of the file.
    pub(super) range: Range<usize>,
}

/// All tensors of a file.
pub(super) struct Table {
    /// In the order of the file's table.
    entries: Vec<Entry>,
    /// Positions in `entries`, ordered by name.
    by_name: Vec<usize>,
}

impl Table {
    /// Reads the descriptions of `count` tensors and finds their data behind them.
    pub(super) fn parse(reader: &mut Reader<'_>, count: usize, alignment: Option<u32>) -> Result<Self, TensorError> {
        let alignment = alignment.unwrap_or(ALIGNMENT_DEFAULT);
        if !alignment.is_power_of_two() {
            return Err(TensorError::metadata(ALIGNMENT_KEY, format!("is {alignment}, which is not a power of two")));
        }
        let described = (0..count).map(|_| Described::parse(reader)).collect::<Result<Vec<_>, _>>()?;
        // At most the header's maximum plus an alignment below 2^32: no overflow.
        let start = (reader.offset() as u64).next_multiple_of(u64::from(alignment));
        let file_len = reader.bytes().len() as u64;
        let entries: Vec<Entry> =
            described.into_iter().map(|tensor| tensor.place(start, alignment, file_len)).collect::<Result<_, _>>()?;
        check_overlap(&entries)?;
        let mut by_name: Vec<usize> = (0..entries.len()).collect();
        by_name.sort_by_key(|i| &entries[*i].name);
        match by_name.windows(2).find(|pair| entries[pair[0]].name == entries[pair[1]].name) {
            Some(twins) => Err(TensorError::tensor(&entries[twins[0]].name, "occurs twice")),
            None => Ok(Self { entries, by_name }),
        }
    }

    /// All tensors, in the order of the file's table.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The tensor of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        let found = self.by_name.binary_search_by(|i| (*self.entries[*i].name).cmp(name)).ok()?;
        Some(&self.entries[self.by_name[found]])
    }

    /// Says which tensors there are with the longest dotted prefix in common with the one that is missing.
    pub(super) fn missing(&self, name: &str) -> TensorError {
        let prefixes = name.rmatch_indices('.').map(|(dot, _)| &name[..=dot]);
        for prefix in prefixes {
            let mut relatives = self.by_name.iter().map(|i| &*self.entries[*i].name).filter(|n| n.starts_with(prefix));
            let listed: Vec<&str> = relatives.by_ref().take(RELATIVES_MAX).collect();
            let more = if relatives.next().is_some() { ", ..." } else { "" };
            if !listed.is_empty() {
                let what = format!("is missing; of {prefix}* the file has {}{more}", listed.join(", "));
                return TensorError::tensor(name, what);
            }
        }
        let count = self.entries.len();
        TensorError::tensor(name, format!("is missing, and none of the file's {count} tensors has a name like it"))
    }
}

/// A tensor as the table describes it: its place is not yet known to be sensible.
struct Described {
    name: String,
    kind: TensorType,
    rows: usize,
    cols: usize,
    /// Counted from the start of the data.
    offset: u64,
}

impl Described {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, TensorError> {
        let name = reader.name("the name of a tensor")?;
        let what = format!("tensor {name:?}");
        let dimensions = reader.u32(&what)?;
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            let message = format!("has {dimensions} dimensions; 1 to {DIMENSIONS_MAX} are allowed");
            return Err(TensorError::tensor(name, message));
        }
        let extents = (0..dimensions).map(|_| reader.u64(&what)).collect::<Result<Vec<_>, _>>()?;
        let kind = TensorType::from_ggml_id(reader.u32(&what)?)
            .map_err(|unsupported| TensorError::tensor(name, format!("can not be read: {unsupported}")))?;
        let offset = reader.u64(&what)?;
        let (rows, cols) = matrix_shape(name, &extents)?;
        Ok(Self { name: name.into(), kind, rows, cols, offset })
    }

    fn place(self, start: u64, alignment: u32, file_len: u64) -> Result<Entry, TensorError> {
        let Self { name, kind, rows, cols, offset } = self;
        let bytes = tensor_bytes(&name, kind, rows, cols)?;
        if !offset.is_multiple_of(u64::from(alignment)) {
            return Err(TensorError::tensor(&name, format!("is at offset {offset}, not a multiple of {alignment}")));
        }
        let range = start.checked_add(offset).and_then(|first| Some(first..first.checked_add(bytes as u64)?));
        let inside = range
            .filter(|range| range.end <= file_len)
            .and_then(|range| Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?));
        let Some(range) = inside else {
            let place = format!("{bytes} bytes at offset {offset} of the data, which start at byte {start}");
            let what =
                format!("needs {place}, but the file has only {file_len} bytes: it is cut short; download it again");
            return Err(TensorError::tensor(&name, what));
        };
        Ok(Entry { name, kind, rows, cols, range })
    }
}

/// Rows and columns. The first extent is the contiguous one; of the others at most one may differ from 1.
fn matrix_shape(name: &str, extents: &[u64]) -> Result<(usize, usize), TensorError> {
    let (cols, outer) = extents.split_first().map_or((1, extents), |(cols, outer)| (*cols, outer));
    let mut long = outer.iter().copied().filter(|extent| *extent != 1);
    let rows = long.next().unwrap_or(1);
    if long.next().is_some() {
        return Err(TensorError::tensor(name, format!("has the shape {extents:?}; only matrices are supported")));
    }
    let too_large = |_| TensorError::tensor(name, format!("is too large to exist: its shape is {extents:?}"));
    Ok((usize::try_from(rows).map_err(too_large)?, usize::try_from(cols).map_err(too_large)?))
}

fn check_overlap(entries: &[Entry]) -> Result<(), TensorError> {
    let mut by_place: Vec<&Entry> = entries.iter().collect();
    by_place.sort_by_key(|entry| entry.range.start);
    match by_place.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
        Some(pair) => Err(TensorError::tensor(&pair[1].name, format!("overlaps with tensor {:?}", pair[0].name))),
        None => Ok(()),
    }
}
