//! Rotary positions: rotates queries in place, and keys on their way into the KV store.

use super::activations::TASK_VALUES;
use super::pool::Pool;
use super::rows::{Parts, Rows};
use super::simd::{Isa, LaneOp, Lanes};
use crate::backend::{Heads, Rope, Span};
use crate::kv::{HEAD_DIM_MAX, Head, Kv, TILE};

/// Cosine and sine of every pair of every row of the last batch: all layers of a step ask for the same.
#[derive(Default)]
pub(crate) struct Angles {
    frequencies: Vec<f32>,
    positions: Vec<usize>,
    turns: Vec<[f32; 2]>,
}

impl Angles {
    /// Brings the table to these spans.
    fn prepare(&mut self, rope: &Rope, spans: &[Span<'_>]) {
        let positions = || spans.iter().flat_map(|span| span.start..span.start + span.count);
        if self.frequencies == rope.inverse_frequencies && positions().eq(self.positions.iter().copied()) {
            return;
        }
        self.frequencies.clone_from(&rope.inverse_frequencies);
        self.positions.clear();
        self.positions.extend(positions());
        self.turns.clear();
        for position in &self.positions {
            // In f64: an f32 has no room for the fractions of a turn at high positions.
            self.turns.extend(self.frequencies.iter().map(|frequency| {
                let (sin, cos) = (*position as f64 * f64::from(*frequency)).sin_cos();
                [cos as f32, sin as f32]
            }));
        }
    }

    fn row(&self, row: usize) -> &[[f32; 2]] {
        &self.turns[row * self.frequencies.len()..][..self.frequencies.len()]
    }
}

/// Queries, keys and values of one layer, and what to do with them.
pub(crate) struct Append<'a> {
    pub(crate) heads: Heads,
    pub(crate) spans: &'a [Span<'a>],
    pub(crate) keys: &'a Rows,
    pub(crate) values: &'a Rows,
    pub(crate) layer: usize,
}

impl Append<'_> {
    /// Rotates queries and keys, and writes keys and values to the store. Spans cover the rows in order, without gaps.
    pub(crate) fn run(&self, isa: Isa, pool: &mut Pool, angles: &mut Angles, rope: &Rope, q: &mut Rows, kv: &mut Kv) {
        let Heads { query, kv: kv_heads, dim } = self.heads;
        let rows = super::check_spans(self.spans);
        assert_eq!(rope.inverse_frequencies.len() * 2, dim, "the rotation is for another head size");
        assert_eq!(kv.shape().heads, self.heads, "the store is for other heads");
        assert_eq!((q.width(), q.count()), (query * dim, rows), "queries of another shape");
        for side in [self.keys, self.values] {
            assert_eq!((side.width(), side.count()), (kv_heads * dim, rows), "keys or values of another shape");
        }
        angles.prepare(rope, self.spans);
        let angles = &*angles;

        let width = q.width();
        let chunk = TASK_VALUES.div_ceil(width).max(1);
        let chunks = rows.div_ceil(chunk);
        let queries = Parts::new(q.values_mut());
        let mut stores: Vec<_> = kv.heads_mut(self.layer).collect();
        let stores = Parts::new(&mut stores);
        let task = |task: usize| match task.checked_sub(kv_heads) {
            None => {
                // SAFETY: each head is one task's own.
                let store = unsafe { stores.slice(task..task + 1) };
                isa.run(Store { append: self, angles, head: task, store: &mut store[0] });
            }
            Some(part) => {
                let rows = part * chunk..rows.min((part + 1) * chunk);
                // SAFETY: each row is one task's own.
                let values = unsafe { queries.slice(rows.start * width..rows.end * width) };
                isa.run(Rotate { angles, dim, width, first: rows.start, values });
            }
        };
        let tasks = kv_heads + chunks;
        if rows * width < TASK_VALUES {
            (0..tasks).for_each(task);
        } else {
            pool.run(tasks, &|_, number| task(number));
        }
    }
}

/// Rotates whole rows of heads.
struct Rotate<'a> {
    angles: &'a Angles,
    dim: usize,
    width: usize,
    first: usize,
    values: &'a mut [f32],
}

impl LaneOp for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        for (i, row) in self.values.chunks_exact_mut(self.width).enumerate() {
            let turns = self.angles.row(self.first + i);
            for head in row.chunks_exact_mut(self.dim) {
                for (pair, turn) in head.as_chunks_mut().0.iter_mut().zip(turns) {
                    *pair = rotate(*pair, *turn);
                }
            }
        }
    }
}

/// Turns a pair by an angle. Two products and a sum, each rounded, at every level.
#[inline(always)]
fn rotate([a, b]: [f32; 2], [cos, sin]: [f32; 2]) -> [f32; 2] {
    [a * cos - b * sin, a * sin + b * cos]
}

/// Writes one KV head of all rows.
struct Store<'a, 'h> {
    append: &'a Append<'a>,
    angles: &'a Angles,
    head: usize,
    store: &'a mut Head<'h>,
}

impl LaneOp for Store<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let dim = self.append.heads.dim;
        let padded = dim.next_multiple_of(TILE);
        let (mut key, mut value) = ([0.0; HEAD_DIM_MAX], [0.0; HEAD_DIM_MAX]);
        let of_head = self.head * dim..(self.head + 1) * dim;
        for span in self.append.spans {
            for i in 0..span.count {
                let row = span.row + i;
                let from = self.append.keys.row(row)[of_head.clone()].as_chunks().0;
                let turned = key.as_chunks_mut().0.iter_mut().zip(from).zip(self.angles.row(row));
                for ((out, pair), turn) in turned {
                    *out = rotate(*pair, *turn);
                }
                value[..dim].copy_from_slice(&self.append.values.row(row)[of_head.clone()]);
                self.store.put(lanes, span.blocks, span.start + i, &key[..padded], &value[..padded]);
            }
        }
    }
}
