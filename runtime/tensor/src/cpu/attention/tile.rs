//! Attention of a few query rows over some partitions of one sequence: the arithmetic.
//!
//! Up to [`TOGETHER`] rows share each key and value while it is in a register. Scores have 16 positions as lanes, outputs
//! 16 values of the head. For each row and partition, whatever else is computed with it:
//!
//! ```text
//! score[p] = sum over i, in order, of (q[i] / sqrt(dim)) * k[p][i]
//! max      = largest score;  weight[p] = e^(score[p] - max), zero beyond the row's own position
//! sum      = sum of weight[p], in 8 interleaved sums;  out = sum over p, in order, of weight[p] * v[p]
//! ```
//!
//! The result of a row is a record: `out`, padded to whole tiles, then `max` and `sum`. A later partition is merged into it
//! by bringing both to the larger of the two `max`.

use super::{Attention, PARTITION, Task};
use crate::cpu::simd::{LANES, LaneOp, Lanes};
use crate::kv::{Line, TILE};

/// Keys and values of 16 positions.
type Tile<'a> = (&'a [Line], &'a [Line]);

/// Rows whose sums fit the registers: two for each row, besides two of keys or values and one of the other factor.
const TOGETHER: usize = 6;

/// A thread's memory.
#[derive(Default)]
pub(super) struct Buffers {
    /// Scaled queries of [`TOGETHER`] rows at a time, `[dim][rows]`.
    queries: Vec<f32>,
    /// Scores, then weights, of those rows.
    weights: Vec<[f32; PARTITION]>,
    /// One record a row.
    records: Vec<f32>,
}

/// A task. Its output is one record a row.
pub(super) struct Unit<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) task: &'a Task,
    pub(super) buffers: &'a mut Buffers,
}

impl<'a> LaneOp for Unit<'a> {
    type Output = &'a [f32];

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> &'a [f32] {
        let Unit { attention, task, buffers } = self;
        let (dim, record) = (attention.heads.dim, attention.record());
        load_queries(attention, task, &mut buffers.queries);
        buffers.weights.resize(TOGETHER, [0.0; PARTITION]);
        buffers.records.resize(task.rows.len() * record, 0.0);
        for partition in task.partitions.clone() {
            let queries = buffers.queries.chunks(TOGETHER * dim);
            let records = buffers.records.chunks_mut(TOGETHER * record);
            for (group, (queries, records)) in queries.zip(records).enumerate() {
                let piece = Piece { attention, task, first: task.rows.start + group * TOGETHER, partition };
                let weights = &mut buffers.weights;
                match queries.len() / dim {
                    1 => piece.run::<L, 1>(lanes, queries, weights, records),
                    2 => piece.run::<L, 2>(lanes, queries, weights, records),
                    3 => piece.run::<L, 3>(lanes, queries, weights, records),
                    4 => piece.run::<L, 4>(lanes, queries, weights, records),
                    5 => piece.run::<L, 5>(lanes, queries, weights, records),
                    _ => piece.run::<L, TOGETHER>(lanes, queries, weights, records),
                }
            }
        }
        &buffers.records
    }
}

fn load_queries(attention: &Attention<'_>, task: &Task, queries: &mut Vec<f32>) {
    let (span, dim) = (&attention.spans[task.span], attention.heads.dim);
    let scale = 1.0 / (dim as f32).sqrt();
    queries.resize(task.rows.len() * dim, 0.0);
    for (group, queries) in queries.chunks_mut(TOGETHER * dim).enumerate() {
        let rows = queries.len() / dim;
        for r in 0..rows {
            let at = attention.place(span, task.head, task.rows.start + group * TOGETHER + r);
            let query = &attention.queries.values()[at..at + dim];
            queries[r..].iter_mut().step_by(rows).zip(query).for_each(|(to, from)| *to = from * scale);
        }
    }
}

/// Up to [`TOGETHER`] rows of a unit, from row `first` on, and one partition.
struct Piece<'a> {
    attention: &'a Attention<'a>,
    task: &'a Task,
    first: usize,
    partition: usize,
}

impl<'a> Piece<'a> {
    #[inline(always)]
    fn run<L: Lanes, const R: usize>(
        &self,
        lanes: L,
        queries: &[f32],
        weights: &mut [[f32; PARTITION]],
        records: &mut [f32],
    ) {
        let (attention, base) = (self.attention, self.partition * PARTITION);
        let span = &attention.spans[self.task.span];
        // Positions that each row attends to; later rows see at least as many.
        let limits: [usize; R] =
            std::array::from_fn(|r| attention.limit(span, self.first + r).saturating_sub(base).min(PARTITION));
        let count = limits[R - 1].div_ceil(TILE);
        let tiles = self.tiles(count);

        for (tile, (keys, _)) in tiles[..count].iter().enumerate() {
            let scores = scores::<L, R>(lanes, queries, keys);
            for (weights, scores) in weights.iter_mut().zip(scores) {
                let weights = &mut weights.as_chunks_mut::<TILE>().0[tile];
                for (to, v) in weights.as_chunks_mut().0.iter_mut().zip(scores) {
                    lanes.store(v, to);
                }
            }
        }
        let (record, start) = (attention.record(), self.partition == self.task.partitions.start);
        let mut factors = [[0.0; 2]; R];
        for r in 0..R {
            let totals = &mut records[(r + 1) * record - 2..][..2];
            let part = softmax(lanes, &mut weights[r][..count * TILE], limits[r]);
            factors[r] = join(lanes, totals, part, start);
        }
        for chunk in 0..(record - 2) / TILE {
            let sums = outputs::<L, R>(lanes, weights, &tiles[..count], chunk);
            for (r, (sums, [old, new])) in sums.into_iter().zip(factors).enumerate() {
                let out = &mut records[r * record + chunk * TILE..][..TILE];
                for (out, sum) in out.as_chunks_mut().0.iter_mut().zip(sums) {
                    let merged = if start { sum } else { scaled(lanes, lanes.load(out), old, sum, new) };
                    lanes.store(merged, out);
                }
            }
        }
    }

    /// Keys and values of the first `count` tiles of the partition.
    #[inline(always)]
    fn tiles(&self, count: usize) -> [Tile<'a>; PARTITION / TILE] {
        let (kv, layer, head) = (self.attention.kv, self.attention.layer, self.task.head);
        let tiles_per_block = kv.shape().block_tokens / TILE;
        let blocks = self.attention.spans[self.task.span].blocks;
        let mut tiles: [Tile<'a>; PARTITION / TILE] = Default::default();
        for (i, tile) in tiles[..count].iter_mut().enumerate() {
            let index = self.partition * (PARTITION / TILE) + i;
            *tile = kv.tile(layer, head, blocks[index / tiles_per_block], index % tiles_per_block);
        }
        tiles
    }
}

/// Scores of `R` queries, `[dim][R]`, with a tile of keys.
#[inline(always)]
fn scores<L: Lanes, const R: usize>(lanes: L, queries: &[f32], keys: &[Line]) -> [[L::V; 2]; R] {
    let mut acc = [[lanes.splat(0.0); 2]; R];
    for (query, [low, high]) in queries.as_chunks::<R>().0.iter().zip(keys) {
        let keys = [lanes.load_f16(low), lanes.load_f16(high)];
        for r in 0..R {
            let query = lanes.splat(query[r]);
            acc[r] = [lanes.fma(query, keys[0], acc[r][0]), lanes.fma(query, keys[1], acc[r][1])];
        }
    }
    acc
}

/// Turns scores into weights, zero from `limit` on; returns the largest score and the sum of the weights.
#[inline(always)]
fn softmax<L: Lanes>(lanes: L, scores: &mut [f32], limit: usize) -> (f32, f32) {
    if limit == 0 {
        scores.fill(0.0);
        return (f32::NEG_INFINITY, 0.0);
    }
    scores[limit..].fill(f32::NEG_INFINITY);
    let vectors = scores.as_chunks_mut::<LANES>().0;
    let mut max = lanes.splat(f32::NEG_INFINITY);
    for v in &*vectors {
        max = lanes.max(max, lanes.load(v));
    }
    let max = lanes.max_lane(max);
    let (shift, mut sum) = (lanes.splat(max), lanes.splat(0.0));
    for v in vectors {
        let weight = lanes.exp(lanes.sub(lanes.load(v), shift));
        sum = lanes.add(sum, weight);
        lanes.store(weight, v);
    }
    (max, lanes.sum(sum))
}

/// Weighted sums of values `16 * chunk ..` of the head for `R` rows. Positions of weight zero add nothing.
#[inline(always)]
fn outputs<L: Lanes, const R: usize>(
    lanes: L,
    weights: &[[f32; PARTITION]],
    tiles: &[Tile<'_>],
    chunk: usize,
) -> [[L::V; 2]; R] {
    let mut acc = [[lanes.splat(0.0); 2]; R];
    for (tile, (_, values)) in tiles.iter().enumerate() {
        let weights: [&[f32; TILE]; R] = std::array::from_fn(|r| &weights[r].as_chunks().0[tile]);
        for (p, [low, high]) in values[chunk * TILE..][..TILE].iter().enumerate() {
            let values = [lanes.load_f16(low), lanes.load_f16(high)];
            for r in 0..R {
                let weight = lanes.splat(weights[r][p]);
                acc[r] = [lanes.fma(weight, values[0], acc[r][0]), lanes.fma(weight, values[1], acc[r][1])];
            }
        }
    }
    acc
}

/// Merges the record of a later partition into `total`.
#[inline(always)]
pub(super) fn merge<L: Lanes>(lanes: L, total: &mut [f32], part: &[f32]) {
    let (total, totals) = total.split_at_mut(total.len() - 2);
    let (part, parts) = part.split_at(total.len());
    let [old, new] = join(lanes, totals, (parts[0], parts[1]), false);
    for (total, part) in total.as_chunks_mut().0.iter_mut().zip(part.as_chunks().0) {
        let merged = scaled(lanes, lanes.load(total), old, lanes.load(part), new);
        lanes.store(merged, total);
    }
}

/// Merges `max` and `sum` of a part into `totals`, or starts with them. Returns the factors for the outputs of both.
#[inline(always)]
fn join<L: Lanes>(lanes: L, totals: &mut [f32], (max, sum): (f32, f32), start: bool) -> [f32; 2] {
    if start {
        totals.copy_from_slice(&[max, sum]);
        return [0.0, 1.0];
    }
    let most = totals[0].max(max);
    let mut factors = [0.0; LANES];
    factors[..2].copy_from_slice(&[totals[0] - most, max - most]);
    let raised = lanes.exp(lanes.load(&factors));
    lanes.store(raised, &mut factors);
    let [old, new, ..] = factors;
    totals.copy_from_slice(&[most, sum.mul_add(new, totals[1] * old)]);
    [old, new]
}

/// `a * old + b * new`.
#[inline(always)]
fn scaled<L: Lanes>(lanes: L, a: L::V, old: f32, b: L::V, new: f32) -> L::V {
    lanes.fma(b, lanes.splat(new), lanes.mul(a, lanes.splat(old)))
}
