//! Weight matrices in the layout of the kernels.
//!
//! Sixteen rows form a *panel*, so that a lane of a vector is a row of the matrix, and sums need no folding at the end.
//! A panel of a quantised matrix is a series of blocks of 32 columns:
//!
//! ```text
//! Format   values            d, m            codes                                        bytes of a block
//! Q4       d * q + m         16 f16 each     nibbles, see below                           320
//! Q4Wide   d * q + m         16 f32 each     nibbles                                      384
//! Q5       d * q + m         16 f32 each     bytes 0..=31                                 640
//! Q8       d * q             16 f16          signed bytes                                 544
//! Q6       d[k / 16] * q     2 x 16 f32      signed bytes -32..=31                        640
//!
//! nibbles  word (g, row) at 64 g + 4 row: columns 4g .. 4g + 3 of the row in the lower    g in 0..4
//!          halves of its bytes, 16 + 4g .. in the upper
//! bytes    pair (p, row) at 32 p + 2 row: columns ORDER[2p] and ORDER[2p + 1]             p in 0..16
//! ```
//!
//! A panel of a matrix of floats has, column after column, the values of its 16 rows. Rows that fill up the last panel are
//! zeros. Q4_1 and Q8_0 take the same memory as in their files, the others a little more; no value changes.

mod pack;

use std::sync::atomic::{AtomicBool, Ordering};

use half::{bf16, f16};

use super::memory::Memory;
use super::pool::Pool;
use super::rows::Parts;
use crate::error::TensorError;
use crate::weights::{TensorType, TensorView};

/// Rows of a panel.
pub(crate) const PANEL: usize = 16;
/// Columns of a block, and values that share a scale among the activations.
pub(crate) const BLOCK: usize = 32;

/// Column of a block at each place of the activations' codes.
///
/// A word of nibbles is two numbers of 16 bits, whose nibbles, from the lowest, are columns `4g` and `4g + 2`, then those
/// 16 further, then `4g + 1` and `4g + 3`, then those 16 further. Shifts and masks yield these pairs; activations that lie
/// in the same order meet them without a shuffle. Even pairs are of the first half of a block, odd ones of the second.
pub(crate) const ORDER: [usize; BLOCK] = {
    let mut order = [0; BLOCK];
    let mut place = 0;
    while place < BLOCK {
        let (g, j, e) = (place / 8, place / 2 % 4, place % 2);
        order[place] = 4 * g + 2 * e + 16 * (j % 2) + j / 2;
        place += 1;
    }
    order
};

/// The inverse of [`ORDER`]: place of each column.
pub(crate) const PLACE: [usize; BLOCK] = {
    let mut places = [0; BLOCK];
    let mut place = 0;
    while place < BLOCK {
        places[ORDER[place]] = place;
        place += 1;
    }
    places
};

/// Layout of a panel; see the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Q4,
    Q4Wide,
    Q5,
    Q8,
    Q6,
    F16,
    BF16,
    F32,
}

/// How the codes of a block lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codes {
    Nibbles,
    Unsigned,
    Signed,
}

/// What precedes the codes of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scales {
    /// d and m, binary16.
    HalfAffine,
    /// d and m, binary32.
    Affine,
    /// d, binary16.
    Half,
    /// d of the first and of the second 16 columns, binary32.
    Two,
}

impl Scales {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Half => 2 * PANEL,
            Self::HalfAffine => 4 * PANEL,
            Self::Affine | Self::Two => 8 * PANEL,
        }
    }
}

/// A quantised format as the kernels are specialised for it.
pub(crate) trait Layout {
    const CODES: Codes;
    const SCALES: Scales;
    /// Bytes of a block.
    const BYTES: usize = Self::SCALES.bytes()
        + match Self::CODES {
            Codes::Nibbles => PANEL * BLOCK / 2,
            Codes::Unsigned | Codes::Signed => PANEL * BLOCK,
        };
}

macro_rules! layouts {
    ($($name:ident: $codes:ident, $scales:ident;)+) => {
        $(
            pub(crate) struct $name;
            impl Layout for $name {
                const CODES: Codes = Codes::$codes;
                const SCALES: Scales = Scales::$scales;
            }
        )+
    };
}

layouts! {
    Q4: Nibbles, HalfAffine;
    Q4Wide: Nibbles, Affine;
    Q5: Unsigned, Affine;
    Q8: Signed, Half;
    Q6: Signed, Two;
}

/// Calls `$function::<Layout>` for a quantised format, or `$float` for the others.
macro_rules! for_layout {
    ($format:expr, $function:ident $arguments:tt, $other:ident => $float:expr) => {
        match $format {
            $crate::cpu::matrix::Format::Q4 => $function::<$crate::cpu::matrix::Q4> $arguments,
            $crate::cpu::matrix::Format::Q4Wide => $function::<$crate::cpu::matrix::Q4Wide> $arguments,
            $crate::cpu::matrix::Format::Q5 => $function::<$crate::cpu::matrix::Q5> $arguments,
            $crate::cpu::matrix::Format::Q8 => $function::<$crate::cpu::matrix::Q8> $arguments,
            $crate::cpu::matrix::Format::Q6 => $function::<$crate::cpu::matrix::Q6> $arguments,
            $other => $float,
        }
    };
}
pub(crate) use for_layout;

fn block_bytes<F: Layout>() -> usize {
    F::BYTES
}

impl Format {
    fn of(kind: TensorType) -> Self {
        match kind {
            TensorType::F32 => Self::F32,
            TensorType::F16 => Self::F16,
            TensorType::BF16 => Self::BF16,
            TensorType::Q4_0 | TensorType::Q4_1 => Self::Q4,
            TensorType::Q4K => Self::Q4Wide,
            TensorType::Q5_1 | TensorType::Q5K => Self::Q5,
            TensorType::Q5_0 | TensorType::Q8_0 => Self::Q8,
            TensorType::Q6K => Self::Q6,
        }
    }

    /// Whether products with it take quantised activations.
    pub(crate) fn is_quantised(self) -> bool {
        !matches!(self, Self::F16 | Self::BF16 | Self::F32)
    }

    /// Bytes of a panel of `cols` columns; `None` if that does not fit in memory.
    pub(crate) fn panel_bytes(self, cols: usize) -> Option<usize> {
        match self {
            Self::F32 => cols.checked_mul(4 * PANEL),
            Self::F16 | Self::BF16 => cols.checked_mul(2 * PANEL),
            quantised => {
                let bytes = for_layout!(quantised, block_bytes(), _float => 0);
                (cols / BLOCK).checked_mul(bytes)
            }
        }
    }
}

/// A packed matrix `[rows, cols]`.
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    data: Memory,
}

impl Matrix {
    /// Repacks a tensor, panel by panel, over the threads of the pool.
    ///
    /// # Errors
    /// A width that is not a multiple of 8, weights that are not finite, or no memory.
    pub(super) fn pack(tensor: &TensorView<'_>, pool: &mut Pool) -> Result<Self, TensorError> {
        let (format, rows, cols) = (Format::of(tensor.kind), tensor.rows, tensor.cols);
        if !cols.is_multiple_of(super::simd::LANES) {
            let what = format!("has rows of {cols} values; this device runs multiples of {}", super::simd::LANES);
            return Err(TensorError::tensor(tensor.name, what));
        }
        let panels = rows.div_ceil(PANEL);
        let sizes = format.panel_bytes(cols).and_then(|bytes| Some((bytes, bytes.checked_mul(panels)?)));
        let Some((panel_bytes, bytes)) = sizes.filter(|(_, bytes)| *bytes > 0) else {
            return Err(TensorError::tensor(tensor.name, format!("has an impossible shape, [{rows}, {cols}]")));
        };
        let mut data = Memory::zeroed("packed weights", bytes)?.with_huge_pages();
        let finite = AtomicBool::new(true);
        let parts = Parts::new(&mut data);
        pool.run(panels, &|_, panel| {
            // SAFETY: each panel is one task's own.
            let out = unsafe { parts.slice(panel * panel_bytes..(panel + 1) * panel_bytes) };
            let rows = panel * PANEL..rows.min((panel + 1) * PANEL);
            if !pack::panel(tensor, rows, format, out) {
                finite.store(false, Ordering::Relaxed);
            }
        });
        if !finite.into_inner() {
            return Err(TensorError::tensor(tensor.name, "has weights that are not finite; the file is damaged"));
        }
        Ok(Self { format, rows, cols, panel_bytes, data })
    }

    /// Output width.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input width.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    pub(crate) fn panel(&self, panel: usize) -> &[u8] {
        &self.data[panel * self.panel_bytes..][..self.panel_bytes]
    }

    /// The values of row `r`.
    pub(crate) fn row(&self, r: usize, out: &mut [f32]) {
        let (panel, lane) = (self.panel(r / PANEL), r % PANEL);
        for_layout!(self.format, quantised_row(panel, lane, out), float => float_row(float, panel, lane, out));
    }
}

/// Scale `i` of a block, as f32.
#[inline]
pub(crate) fn half_at(block: &[u8], i: usize) -> f32 {
    f16::from_le_bytes([block[2 * i], block[2 * i + 1]]).to_f32()
}

/// Scale `i` of a block.
#[inline]
pub(crate) fn float_at(block: &[u8], i: usize) -> f32 {
    f32::from_le_bytes([block[4 * i], block[4 * i + 1], block[4 * i + 2], block[4 * i + 3]])
}

/// d of either half of a row's block, and m.
#[inline]
pub(crate) fn scales_of<F: Layout>(block: &[u8], lane: usize) -> ([f32; 2], f32) {
    match F::SCALES {
        Scales::HalfAffine => ([half_at(block, lane); 2], half_at(block, PANEL + lane)),
        Scales::Affine => ([float_at(block, lane); 2], float_at(block, PANEL + lane)),
        Scales::Half => ([half_at(block, lane); 2], 0.0),
        Scales::Two => ([float_at(block, lane), float_at(block, PANEL + lane)], 0.0),
    }
}

/// The 32 codes of a row's block.
#[inline]
pub(crate) fn codes_of<F: Layout>(block: &[u8], lane: usize) -> [i32; BLOCK] {
    let codes = &block[F::SCALES.bytes()..];
    std::array::from_fn(|k| match F::CODES {
        Codes::Nibbles => i32::from(codes[64 * (k % 16 / 4) + 4 * lane + k % 4] >> (k / 16 * 4) & 15),
        // Unsigned codes are below 128, so that both are read as signed bytes.
        Codes::Unsigned | Codes::Signed => {
            i32::from(codes[2 * PANEL * (PLACE[k] / 2) + 2 * lane + PLACE[k] % 2].cast_signed())
        }
    })
}

fn quantised_row<F: Layout>(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (block, out) in panel.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(BLOCK)) {
        let (d, m) = scales_of::<F>(block, lane);
        for (k, (code, out)) in codes_of::<F>(block, lane).into_iter().zip(out).enumerate() {
            *out = d[k / 16] * code as f32 + m;
        }
    }
}

/// Value `i` of a panel of floats.
#[inline]
pub(crate) fn float_value(format: Format, panel: &[u8], i: usize) -> f32 {
    match format {
        Format::F32 => float_at(panel, i),
        Format::BF16 => bf16::from_le_bytes([panel[2 * i], panel[2 * i + 1]]).to_f32(),
        _ => half_at(panel, i),
    }
}

fn float_row(format: Format, panel: &[u8], lane: usize, out: &mut [f32]) {
    for (k, out) in out.iter_mut().enumerate() {
        *out = float_value(format, panel, k * PANEL + lane);
    }
}
