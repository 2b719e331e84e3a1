//! A step plan in the form that a graph runs, and the door through which plans come in.
//!
//! [`Batch::fill`] is called once a micro-batch, by [`crate::chain::Chain::launch`]. Behind it every token has a row in the
//! embedding and every position has a place in the KV store, so that devices need no bounds reasoning of their own.
//! A batch keeps its memory from one plan to the next.

use std::ops::Range;

use pointsman_engine::ids::BlockId;
use pointsman_engine::port::{Logits, SeqSlice, StepPlan};
use pointsman_tensor::backend::Span;

/// What a plan must fit into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Rows of the embedding.
    pub vocab: usize,
    /// Positions that the model has been made for.
    pub context: usize,
    /// Blocks in the KV store of each stage.
    pub blocks: usize,
    /// Tokens in a block.
    pub block_tokens: usize,
}

/// One slice of the plan, as indices into its batch.
struct Piece {
    row: usize,
    count: usize,
    start: usize,
    blocks: Range<usize>,
}

/// A checked micro-batch. The tokens of all slices follow one another as rows.
#[derive(Default)]
pub(crate) struct Batch {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    pieces: Vec<Piece>,
    wanted: Vec<usize>,
    /// Blocks that some slice writes, ascending; only used while the batch is filled.
    written: Vec<u32>,
}

impl Batch {
    /// Replaces the content by `plan`.
    ///
    /// # Errors
    /// The plan does not fit; the text says which slice and why, and the batch must not be run.
    pub(crate) fn fill(&mut self, plan: &StepPlan, bounds: &Bounds) -> Result<(), String> {
        self.tokens.clear();
        self.blocks.clear();
        self.pieces.clear();
        self.wanted.clear();
        self.written.clear();
        if plan.slices.is_empty() {
            return Err("the step has no slices".into());
        }
        for slice in &plan.slices {
            self.push(slice, bounds).map_err(|why| format!("request {}: {why}", slice.request.0))?;
        }
        self.written.sort_unstable();
        match self.written.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("KV block {} is written twice in one step", pair[0])),
            None => Ok(()),
        }
    }

    fn push(&mut self, slice: &SeqSlice, bounds: &Bounds) -> Result<(), String> {
        let (start, count, row) = (slice.start as usize, slice.tokens.len(), self.tokens.len());
        if count == 0 {
            return Err("the slice has no tokens".into());
        }
        let end = start.checked_add(count).filter(|&end| end <= bounds.context).ok_or_else(|| {
            format!("{count} tokens from position {start} end after the model's context of {}", bounds.context)
        })?;
        if let Some(token) = slice.tokens.iter().find(|&&token| token as usize >= bounds.vocab) {
            return Err(format!("token {token} is outside the vocabulary of {}", bounds.vocab));
        }
        let needed = end.div_ceil(bounds.block_tokens);
        let table = slice.blocks.get(..needed).ok_or_else(|| {
            format!("{} KV blocks of {} tokens do not cover {end} positions", slice.blocks.len(), bounds.block_tokens)
        })?;
        if let Some(BlockId(block)) = table.iter().find(|block| block.0 as usize >= bounds.blocks) {
            return Err(format!("KV block {block} is outside the store of {}", bounds.blocks));
        }
        let first_block = self.blocks.len();
        self.blocks.extend(table.iter().map(|block| block.0));
        self.written.extend_from_slice(&self.blocks[first_block + start / bounds.block_tokens..]);
        self.pieces.push(Piece { row, count, start, blocks: first_block..self.blocks.len() });
        self.tokens.extend_from_slice(&slice.tokens);
        match slice.logits {
            Logits::None => {}
            Logits::Last => self.wanted.push(row + count - 1),
            Logits::All => self.wanted.extend(row..row + count),
        }
        Ok(())
    }

    /// One token a row.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Rows whose logits the engine wants, in the order of the slices.
    pub(crate) fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// One span a slice, in order.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.pieces.iter().map(|piece| Span {
            row: piece.row,
            count: piece.count,
            start: piece.start,
            blocks: &self.blocks[piece.blocks.clone()],
        })
    }
}

/// The memory of a list of spans, for the next list. Collecting a drained vector of the same layout in place keeps its
/// allocation, which spares the step loop one.
pub(crate) fn recycle<'to>(mut spans: Vec<Span<'_>>) -> Vec<Span<'to>> {
    spans.clear();
    spans.into_iter().map(|_| -> Span<'to> { unreachable!("the list is empty") }).collect()
}

#[cfg(test)]
mod tests {
    use pointsman_engine::ids::{ChainId, RequestId};

    use super::*;

    const BOUNDS: Bounds = Bounds { vocab: 10, context: 12, blocks: 4, block_tokens: 4 };

    fn slice(start: u32, tokens: &[u32], blocks: &[u32], logits: Logits) -> SeqSlice {
        let blocks = blocks.iter().map(|&block| BlockId(block)).collect();
        SeqSlice { request: RequestId(7), start, tokens: tokens.to_vec(), blocks, logits }
    }

    fn fill(slices: Vec<SeqSlice>) -> Result<Batch, String> {
        let mut batch = Batch::default();
        batch.fill(&StepPlan { chain: ChainId(0), batch: 0, slices }, &BOUNDS).map(|()| batch)
    }

    #[test]
    fn rows_spans_and_wanted_logits_follow_the_slices() {
        let batch =
            fill(vec![slice(0, &[1, 2, 3], &[2, 0], Logits::All), slice(5, &[4], &[3, 1], Logits::Last)]).unwrap();
        assert_eq!(batch.tokens(), [1, 2, 3, 4]);
        assert_eq!(batch.wanted(), [0, 1, 2, 3]);
        let spans: Vec<_> = batch.spans().map(|span| (span.row, span.count, span.start, span.blocks)).collect();
        assert_eq!(spans, [(0, 3, 0, &[2][..]), (3, 1, 5, &[3, 1][..])]);
    }

    #[test]
    fn a_block_may_be_read_by_many_but_written_by_one() {
        let prefix_shared = vec![slice(5, &[4], &[3, 1], Logits::Last), slice(5, &[6], &[3, 0], Logits::Last)];
        assert!(fill(prefix_shared).is_ok());
        let end_shared = vec![slice(0, &[1, 2], &[2], Logits::Last), slice(5, &[4], &[3, 2], Logits::Last)];
        assert_eq!(fill(end_shared).err().unwrap(), "KV block 2 is written twice in one step");
    }

    #[test]
    fn refuses_what_does_not_fit_and_says_why() {
        let cases: [(SeqSlice, &str); 7] = [
            (slice(0, &[], &[0], Logits::Last), "the slice has no tokens"),
            (
                slice(11, &[1, 1], &[0, 1, 2, 3], Logits::Last),
                "2 tokens from position 11 end after the model's context of 12",
            ),
            (
                slice(u32::MAX, &[1], &[0], Logits::Last),
                "1 tokens from position 4294967295 end after the model's context of 12",
            ),
            (slice(0, &[9, 10], &[0], Logits::Last), "token 10 is outside the vocabulary of 10"),
            (slice(4, &[1], &[0], Logits::Last), "1 KV blocks of 4 tokens do not cover 5 positions"),
            (slice(0, &[1], &[4], Logits::Last), "KV block 4 is outside the store of 4"),
            (slice(0, &[1; 5], &[1, 1], Logits::Last), "KV block 1 is written twice in one step"),
        ];
        for (slice, why) in cases {
            let error = fill(vec![slice]).err().unwrap();
            assert!(error.ends_with(why), "{error:?} does not end with {why:?}");
        }
        assert_eq!(fill(Vec::new()).err().unwrap(), "the step has no slices");
    }

    #[test]
    fn recycling_keeps_the_memory() {
        let mut spans: Vec<Span<'static>> = Vec::with_capacity(32);
        spans.push(Span { row: 0, count: 1, start: 0, blocks: &[] });
        let spans = recycle(spans);
        assert!(spans.is_empty());
        assert_eq!(spans.capacity(), 32);
    }
}
