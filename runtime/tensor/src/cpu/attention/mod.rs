//! Causal attention over the paged store: how the work is cut.
//!
//! All query rows of a span that use the same KV head are cut into *units* of up to [`ROWS`] rows, which read keys and
//! values together (grouped heads share them anyway; in a prefill, so do neighbouring tokens). Positions are taken in
//! partitions of [`PARTITION`], counted from the start of the sequence: each has its own softmax, and these are merged in
//! order. So a row's result depends on its position only, not on the batch, the cut of the prompt or the threads.
//!
//! When there are fewer units than would keep the threads busy, as in the decode of one long sequence, each partition is a
//! task of its own and the merging follows.

mod tile;

use std::ops::Range;

use super::pool::Pool;
use super::rows::{Parts, Rows};
use super::simd::{Isa, LaneOp, Lanes};
use crate::backend::{Heads, Span};
use crate::kv::{Kv, TILE};
use tile::Unit;

/// Positions that share a softmax.
const PARTITION: usize = 256;
/// Query rows that are computed together.
const ROWS: usize = 24;
/// Pairs of a query row and a position, a few nanoseconds each, below which the pool is not worth its while.
const SMALL: usize = 2048;

/// Buffers that are kept from one call to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    tasks: Vec<Task>,
    threads: Vec<tile::Buffers>,
    partials: Vec<f32>,
}

/// Some partitions of a unit.
#[derive(Clone, Debug)]
struct Task {
    span: usize,
    head: usize,
    /// Rows of the unit, counted over the tokens of the span and the query heads of the group.
    rows: Range<usize>,
    partitions: Range<usize>,
}

/// One layer's attention.
pub(crate) struct Attention<'a> {
    pub(crate) heads: Heads,
    pub(crate) spans: &'a [Span<'a>],
    pub(crate) queries: &'a Rows,
    pub(crate) kv: &'a Kv,
    pub(crate) layer: usize,
}

impl Attention<'_> {
    /// Replaces `out` by the result, `[rows, query heads * dim]`. Spans cover the rows in order, without gaps.
    pub(crate) fn run(&self, isa: Isa, pool: &mut Pool, scratch: &mut Scratch, out: &mut Rows) {
        let rows = super::check_spans(self.spans);
        let width = self.heads.query * self.heads.dim;
        assert_eq!(self.kv.shape().heads, self.heads, "the store is for other heads");
        assert_eq!((self.queries.width(), self.queries.count()), (width, rows), "queries of another shape");
        assert_eq!(out.width(), width, "output of another width");
        out.resize(rows);
        scratch.threads.resize_with(pool.threads(), Default::default);
        let split = self.plan(pool.threads(), &mut scratch.tasks);
        let record = self.record();
        if split {
            scratch.partials.resize(scratch.tasks.len() * ROWS * record, 0.0);
        }
        let (tasks, partials, out) = (&scratch.tasks, Parts::new(&mut scratch.partials), Parts::new(out.values_mut()));
        let body = |buffers: &mut tile::Buffers, number: usize| {
            let task = &tasks[number];
            let records = isa.run(Unit { attention: self, task, buffers });
            if split {
                // SAFETY: each task has a place of its own.
                unsafe { partials.slice(number * ROWS * record..(number * ROWS + task.rows.len()) * record) }
                    .copy_from_slice(records);
            } else {
                // SAFETY: each query head of each row is in one task.
                unsafe { self.finish(task, records, &out) };
            }
        };
        if self.pairs() <= SMALL {
            (0..tasks.len()).for_each(|number| body(&mut scratch.threads[0], number));
        } else {
            pool.run_with(&mut scratch.threads, tasks.len(), body);
        }
        if split {
            self.merge(isa, tasks, &mut scratch.partials, &out);
        }
    }

    /// Pairs of a query row and a position, at most.
    fn pairs(&self) -> usize {
        self.spans.iter().map(|span| span.count * (span.start + span.count) * self.heads.query).sum()
    }

    /// Query heads that share a KV head.
    fn group(&self) -> usize {
        self.heads.query / self.heads.kv
    }

    /// Values of a row's sums: outputs, padded, then the largest score and the sum of weights.
    fn record(&self) -> usize {
        self.heads.dim.next_multiple_of(TILE) + 2
    }

    /// Positions that row `row` of a span's group attends to.
    fn limit(&self, span: &Span<'_>, row: usize) -> usize {
        span.start + row / self.group() + 1
    }

    /// Lists the tasks; true if units are split by partitions.
    fn plan(&self, threads: usize, tasks: &mut Vec<Task>) -> bool {
        tasks.clear();
        for (index, span) in self.spans.iter().enumerate() {
            let rows = span.count * self.group();
            for head in 0..self.heads.kv {
                // The last rows have the most to do; they start first.
                for unit in (0..rows.div_ceil(ROWS)).rev() {
                    let rows = unit * ROWS..rows.min((unit + 1) * ROWS);
                    let partitions = 0..self.limit(span, rows.end - 1).div_ceil(PARTITION);
                    tasks.push(Task { span: index, head, rows, partitions });
                }
            }
        }
        let split = threads > 1 && tasks.len() < 2 * threads && tasks.iter().any(|task| task.partitions.len() > 1);
        if split {
            for unit in 0..tasks.len() {
                let whole = tasks[unit].clone();
                tasks[unit].partitions = 0..1;
                tasks.extend(whole.partitions.clone().skip(1).map(|p| Task { partitions: p..p + 1, ..whole.clone() }));
            }
        }
        split
    }

    /// Writes the outputs of a unit.
    ///
    /// # Safety
    /// No other thread has a task with the same rows and head.
    unsafe fn finish(&self, task: &Task, records: &[f32], out: &Parts<'_, f32>) {
        let (span, dim) = (&self.spans[task.span], self.heads.dim);
        for (row, record) in task.rows.clone().zip(records.chunks_exact(self.record())) {
            let at = self.place(span, task.head, row);
            // SAFETY: these values belong to this row and head.
            let out = unsafe { out.slice(at..at + dim) };
            let scale = 1.0 / record[record.len() - 1];
            out.iter_mut().zip(record).for_each(|(out, sum)| *out = sum * scale);
        }
    }

    /// Where row `row` of a span's group starts among queries and outputs.
    fn place(&self, span: &Span<'_>, head: usize, row: usize) -> usize {
        let (token, query) = (span.row + row / self.group(), head * self.group() + row % self.group());
        (token * self.heads.query + query) * self.heads.dim
    }

    /// Merges the partitions of units that were split, in order, and writes the outputs.
    fn merge(&self, isa: Isa, tasks: &[Task], partials: &mut [f32], out: &Parts<'_, f32>) {
        let units = tasks.iter().take_while(|task| task.partitions.start == 0).count();
        let place = ROWS * self.record();
        let (firsts, rest) = partials.split_at_mut(units * place);
        for (unit, first) in tasks[..units].iter().zip(firsts.chunks_exact_mut(place)) {
            let used = unit.rows.len() * self.record();
            let first = &mut first[..used];
            // Tasks of one unit follow one another in the order of their partitions.
            for (task, part) in tasks[units..].iter().zip(rest.chunks_exact(place)) {
                if (task.span, task.head, task.rows.start) == (unit.span, unit.head, unit.rows.start) {
                    isa.run(Merge { total: first, part: &part[..used], record: self.record() });
                }
            }
            // SAFETY: the region is over; only this thread is left.
            unsafe { self.finish(unit, first, out) };
        }
    }
}

/// Adds the sums of a later partition, row by row.
struct Merge<'a> {
    total: &'a mut [f32],
    part: &'a [f32],
    record: usize,
}

impl LaneOp for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (total, part) in self.total.chunks_exact_mut(self.record).zip(self.part.chunks_exact(self.record)) {
            tile::merge(lanes, total, part);
        }
    }
}
