//! A tensor as it lies in a file: its type, its shape and its bytes.

use std::fmt;

use crate::error::TensorError;
use crate::weights::dequantize_row;

/// Number formats that the runtime reads. Each is documented, bit by bit, where it is decoded (`weights/blocks`).
///
/// A row of a tensor is a whole number of blocks; a block is `block_len` consecutive values in `block_bytes` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// 32 values of 4 bits with a scale.
    Q4_0,
    /// 32 values of 4 bits with a scale and a minimum.
    Q4_1,
    /// 32 values of 5 bits with a scale.
    Q5_0,
    /// 32 values of 5 bits with a scale and a minimum.
    Q5_1,
    /// 32 values of 8 bits with a scale.
    Q8_0,
    /// 256 values of 4 bits in 8 groups, each with a scale and a minimum.
    Q4K,
    /// 256 values of 5 bits in 8 groups, each with a scale and a minimum.
    Q5K,
    /// 256 values of 6 bits in 16 groups, each with a scale.
    Q6K,
}

impl TensorType {
    /// All of them, in the order of their GGML numbers.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::BF16,
    ];

    /// GGML number, values in a block, bytes of a block.
    const fn facts(self) -> (u32, usize, usize) {
        match self {
            Self::F32 => (0, 1, 4),
            Self::F16 => (1, 1, 2),
            Self::Q4_0 => (2, 32, 18),
            Self::Q4_1 => (3, 32, 20),
            Self::Q5_0 => (6, 32, 22),
            Self::Q5_1 => (7, 32, 24),
            Self::Q8_0 => (8, 32, 34),
            Self::Q4K => (12, 256, 144),
            Self::Q5K => (13, 256, 176),
            Self::Q6K => (14, 256, 210),
            Self::BF16 => (30, 1, 2),
        }
    }

    /// The number that GGUF files use for this type.
    #[must_use]
    pub const fn ggml_id(self) -> u32 {
        self.facts().0
    }

    /// Values in a block: 1, 32 or 256.
    #[must_use]
    pub const fn block_len(self) -> usize {
        self.facts().1
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        self.facts().2
    }

    /// Bytes of a row of `cols` values; `None` if that is not a whole number of blocks or does not fit in memory.
    #[must_use]
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    /// GGML's name, such as `Q4_K`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ggml_name(self.ggml_id())
    }

    /// The type with this GGML number.
    ///
    /// # Errors
    /// [`TensorError::Unsupported`], which names the type, for every other number.
    pub fn from_ggml_id(id: u32) -> Result<Self, TensorError> {
        Self::ALL.into_iter().find(|kind| kind.ggml_id() == id).ok_or_else(|| {
            let supported = Self::ALL.map(Self::name).join(", ");
            TensorError::Unsupported(match ggml_name(id) {
                "" => format!("tensor type {id} is unknown; supported are {supported}"),
                name => format!("{name} is not supported; supported are {supported}"),
            })
        })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Names of all GGML types, also of those that are only recognised to be refused; empty for a number that is not in use.
const fn ggml_name(id: u32) -> &'static str {
    match id {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        6 => "Q5_0",
        7 => "Q5_1",
        8 => "Q8_0",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        30 => "BF16",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        _ => "",
    }
}

/// A matrix of weights in a file, borrowed from its mapping. A vector has one row.
///
/// The fields are public to be read; [`TensorView::new`] is the way to build one, since devices rely on what it checks.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// Name in the file, such as `blk.0.attn_q.weight`.
    pub name: &'a str,
    /// Number format of the values.
    pub kind: TensorType,
    /// Rows, at least one: the output width of a linear layer, the vocabulary of an embedding.
    pub rows: usize,
    /// Values in a row, contiguous in the file; a multiple of the block length, at least one block.
    pub cols: usize,
    /// Exactly `rows` times [`TensorView::row_bytes`] bytes. The address has no alignment to rely on.
    pub data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view of `data` as a matrix `[rows, cols]`.
    ///
    /// # Errors
    /// No values, a row that is not a whole number of blocks, or another number of bytes than the shape implies.
    pub fn new(name: &'a str, kind: TensorType, rows: usize, cols: usize, data: &'a [u8]) -> Result<Self, TensorError> {
        let wanted = tensor_bytes(name, kind, rows, cols)?;
        if data.len() != wanted {
            let what = format!("has {} bytes, but {kind} [{rows}, {cols}] needs {wanted}", data.len());
            return Err(TensorError::tensor(name, what));
        }
        Ok(Self { name, kind, rows, cols, data })
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.data.len() / self.rows
    }

    /// The bytes of row `r`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, r: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        &self.data[r * bytes..][..bytes]
    }

    /// All values as f32, row-major.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        dequantize_row(self.kind, self.data, &mut values);
        values
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorView({:?}, {} [{}, {}])", self.name, self.kind, self.rows, self.cols)
    }
}

/// Bytes of a tensor, after its shape is checked against its type.
pub(super) fn tensor_bytes(name: &str, kind: TensorType, rows: usize, cols: usize) -> Result<usize, TensorError> {
    if rows == 0 || cols == 0 {
        return Err(TensorError::tensor(name, format!("has no values: its shape is [{rows}, {cols}]")));
    }
    let block = kind.block_len();
    if !cols.is_multiple_of(block) {
        let what = format!("has rows of {cols} values, which is not a multiple of the {block} of a {kind} block");
        return Err(TensorError::tensor(name, what));
    }
    // Values are counted too, since their number (times four) is what dequantisation allocates.
    let bytes = kind.row_bytes(cols).and_then(|row| row.checked_mul(rows));
    let values = rows.checked_mul(cols).filter(|values| *values <= isize::MAX as usize / 4);
    bytes
        .filter(|_| values.is_some())
        .ok_or_else(|| TensorError::tensor(name, format!("is too large to exist: its shape is [{rows}, {cols}]")))
}
