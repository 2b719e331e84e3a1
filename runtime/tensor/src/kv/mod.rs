//! The paged keys and values of one stage, in host memory as binary16.
//!
//! Written by `rope_append` of the CPU backend, token by token; read by its attention, 16 positions (a *tile*) at a time.
//! Other codecs will take the place of what `Head::put` writes and `Kv::tile` gives out; nothing else knows the layout.
//!
//! ```text
//! [layer][KV head][block][tile of 16 positions]
//!     keys    [dim][16 positions]                         scores of 16 positions without sums across lanes
//!     values  [dim / 16, rounded up][16 positions][16]    outputs likewise, 16 values of the head at a time
//! ```
//!
//! Invariant: all values are finite, so that a position with weight zero adds nothing, whatever an earlier owner of the
//! block has left there. Memory is zeros that cost nothing until a block of a head is first written.

use half::f16;

use crate::backend::{Heads, KvShape};
use crate::cpu::memory::Memory;
use crate::cpu::simd::{LANES, Lanes};
use crate::error::TensorError;

/// Positions of a tile; the tokens of a block are a multiple of it.
pub const TILE: usize = 16;
/// Largest head that attention has room for.
pub const HEAD_DIM_MAX: usize = 256;

/// Sixteen values, as two vectors.
pub(crate) type Line = [[f16; LANES]; 2];

/// Bytes that one token takes in a number of layers.
#[must_use]
pub const fn bytes_per_token(layers: usize, heads: Heads) -> usize {
    (heads.dim + heads.dim.next_multiple_of(TILE)) * size_of::<f16>() * heads.kv * layers
}

/// The store of one stage.
pub struct Kv {
    shape: KvShape,
    layout: Layout,
    data: Memory,
}

/// Sizes in lines of 16 values.
#[derive(Clone, Copy)]
struct Layout {
    /// Lines of the keys of a tile: one a value of the head.
    keys: usize,
    /// Lines of the values of a tile.
    values: usize,
    tiles_per_block: usize,
    blocks: usize,
}

impl Layout {
    const fn tile(self) -> usize {
        self.keys + self.values
    }

    const fn head(self) -> usize {
        self.tile() * self.tiles_per_block * self.blocks
    }
}

impl Kv {
    /// An empty store.
    ///
    /// # Errors
    /// Heads that attention does not run, blocks that are not whole tiles, a size beyond the address space, no memory.
    pub fn new(shape: KvShape) -> Result<Self, TensorError> {
        let KvShape { layers, blocks, block_tokens, heads: Heads { query, kv, dim } } = shape;
        let refuse = |what: String| Err(TensorError::Unsupported(what));
        if dim == 0 || dim > HEAD_DIM_MAX || !dim.is_multiple_of(2) {
            return refuse(format!(
                "attention heads of {dim} values; this device runs even sizes up to {HEAD_DIM_MAX}"
            ));
        }
        if kv == 0 || query == 0 || !query.is_multiple_of(kv) {
            return refuse(format!("{query} query heads do not share {kv} KV heads evenly"));
        }
        if layers == 0 || blocks == 0 || block_tokens == 0 || !block_tokens.is_multiple_of(TILE) {
            return refuse(format!(
                "a KV store of {layers} layers and {blocks} blocks of {block_tokens} tokens; blocks are multiples of {TILE}"
            ));
        }
        let layout =
            Layout { keys: dim, values: dim.next_multiple_of(TILE), tiles_per_block: block_tokens / TILE, blocks };
        let factors = [layout.tile(), layout.tiles_per_block, blocks, kv, layers, size_of::<Line>()];
        let bytes =
            factors.into_iter().try_fold(1usize, usize::checked_mul).filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            return refuse(format!(
                "a KV store of {layers} layers and {blocks} blocks is larger than the address space"
            ));
        };
        Ok(Self { shape, layout, data: Memory::zeroed("the KV store", bytes)? })
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Address space that it takes; memory is used as blocks are first written.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes of one token in all layers of this stage.
    #[must_use]
    pub fn bytes_per_token(&self) -> usize {
        bytes_per_token(self.shape.layers, self.shape.heads)
    }

    /// Keys and values of tile `tile` of a block.
    ///
    /// # Panics
    /// If there is no such tile.
    #[inline]
    pub(crate) fn tile(&self, layer: usize, head: usize, block: u32, tile: usize) -> (&[Line], &[Line]) {
        let layout = self.layout;
        let head = &lines(&self.data)[(layer * self.shape.heads.kv + head) * layout.head()..][..layout.head()];
        let tile = &head[(block as usize * layout.tiles_per_block + tile) * layout.tile()..][..layout.tile()];
        tile.split_at(layout.keys)
    }

    /// The heads of a layer, each to be written on its own.
    pub(crate) fn heads_mut(&mut self, layer: usize) -> impl Iterator<Item = Head<'_>> {
        let (layout, heads, block_tokens) = (self.layout, self.shape.heads.kv, self.shape.block_tokens);
        let all = lines_mut(&mut self.data);
        let layer = &mut all[layer * heads * layout.head()..][..heads * layout.head()];
        layer.chunks_exact_mut(layout.head()).map(move |lines| Head { layout, block_tokens, lines })
    }
}

/// One KV head of one layer, to be written.
pub(crate) struct Head<'a> {
    layout: Layout,
    block_tokens: usize,
    lines: &'a mut [Line],
}

impl Head<'_> {
    /// Encodes key and value of a position; both are padded with zeros to whole vectors of [`TILE`] values.
    ///
    /// # Panics
    /// If `blocks` does not cover the position, or names a block that is not there.
    #[inline(always)]
    pub(crate) fn put<L: Lanes>(&mut self, lanes: L, blocks: &[u32], position: usize, key: &[f32], value: &[f32]) {
        let layout = self.layout;
        let (block, slot) = (blocks[position / self.block_tokens] as usize, position % self.block_tokens);
        let tile = (block * layout.tiles_per_block + slot / TILE) * layout.tile();
        let (keys, values) = self.lines[tile..][..layout.tile()].split_at_mut(layout.keys);
        let column = slot % TILE;
        for (lines, key) in keys.chunks_mut(LANES).zip(key.as_chunks().0) {
            let halves = lanes.to_f16(finite(lanes, lanes.load(key)));
            for (line, half) in lines.iter_mut().zip(halves) {
                line[column / LANES][column % LANES] = half;
            }
        }
        for (lines, value) in values.chunks_exact_mut(TILE).zip(value.as_chunks::<TILE>().0) {
            for (out, value) in lines[column].iter_mut().zip(value.as_chunks().0) {
                *out = lanes.to_f16(finite(lanes, lanes.load(value)));
            }
        }
    }
}

/// Within the range of binary16.
#[inline(always)]
fn finite<L: Lanes>(lanes: L, v: L::V) -> L::V {
    let most = f16::MAX.to_f32();
    lanes.max(lanes.min(v, lanes.splat(most)), lanes.splat(-most))
}

fn lines(bytes: &[u8]) -> &[Line] {
    // SAFETY: every pattern of bits is a binary16, and arrays have no padding.
    unsafe { bytes.align_to().1 }
}

fn lines_mut(bytes: &mut [u8]) -> &mut [Line] {
    // SAFETY: every pattern of bits is a binary16, and a sequence of bytes; arrays have no padding.
    unsafe { bytes.align_to_mut().1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::Plain;

    fn shape(dim: usize, block_tokens: usize) -> KvShape {
        KvShape { layers: 2, blocks: 3, block_tokens, heads: Heads { query: 4, kv: 2, dim } }
    }

    #[test]
    fn what_is_put_is_found_in_its_place_and_nowhere_else() {
        for (dim, block_tokens) in [(8, 16), (20, 32), (64, 16), (80, 48)] {
            let mut kv = Kv::new(shape(dim, block_tokens)).unwrap();
            let padded = dim.next_multiple_of(TILE);
            let row = |base: f32| (0..padded).map(|i| if i < dim { base + i as f32 } else { 0.0 }).collect::<Vec<_>>();
            let position = block_tokens + 17 % block_tokens;
            let mut head = kv.heads_mut(1).nth(1).unwrap();
            head.put(Plain, &[2, 1], position, &row(1.0), &row(500.0));
            let slot = position % block_tokens;
            for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                for block in 0..3 {
                    for tile in 0..block_tokens / TILE {
                        let (keys, values) = kv.tile(layer, head, block, tile);
                        for column in 0..TILE {
                            let here = (layer, head, block, tile * TILE + column) == (1, 1, 1, slot);
                            for i in 0..dim {
                                let key = keys[i].as_flattened()[column].to_f32();
                                let value = values[i / TILE * TILE + column].as_flattened()[i % TILE].to_f32();
                                let expected = if here { (1.0 + i as f32, 500.0 + i as f32) } else { (0.0, 0.0) };
                                assert_eq!((key, value), expected, "dim {dim}, value {i}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn values_beyond_binary16_stay_finite() {
        let mut kv = Kv::new(shape(8, 16)).unwrap();
        let mut row = [f32::INFINITY; 16];
        row[1] = f32::NEG_INFINITY;
        row[2] = f32::NAN;
        kv.heads_mut(0).next().unwrap().put(Plain, &[0], 0, &row, &row);
        let (keys, values) = kv.tile(0, 0, 0, 0);
        assert!(keys.iter().chain(values).all(|line| line.as_flattened().iter().all(|half| half.is_finite())));
    }

    #[test]
    fn counts_bytes() {
        let kv =
            Kv::new(KvShape { layers: 30, blocks: 4, block_tokens: 16, heads: Heads { query: 9, kv: 3, dim: 64 } })
                .unwrap();
        assert_eq!(kv.bytes_per_token(), 23_040);
        assert_eq!(kv.bytes(), 23_040 * 64);
    }

    #[test]
    fn refuses_what_it_can_not_hold() {
        for (dim, block_tokens) in [(0, 16), (7, 16), (258, 16), (64, 0), (64, 8), (64, 24)] {
            assert!(Kv::new(shape(dim, block_tokens)).is_err(), "{dim}, {block_tokens}");
        }
        let mut huge = shape(64, 16);
        huge.blocks = usize::MAX / 1024;
        assert!(Kv::new(huge).is_err());
        huge.blocks = 1 << 44;
        assert!(matches!(Kv::new(huge), Err(TensorError::Allocation { .. } | TensorError::Unsupported(_))));
        huge.blocks = 1;
        huge.heads.kv = 3;
        assert!(Kv::new(huge).is_err());
    }
}
