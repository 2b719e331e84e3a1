//! Accounting of one chain's paged KV store: counts and ids, never bytes.
//!
//! Blocks are reserved for a sequence's whole life at once. A [`Table`] can not be copied and is consumed by its release,
//! so that no block can be freed twice. Invariant: free and reserved blocks together are all blocks, each exactly once.

use std::sync::Arc;

use crate::ids::BlockId;

/// The blocks of one chain.
pub(crate) struct BlockPool {
    /// A stack: the block released last is reserved next, while it is still warm.
    free: Vec<BlockId>,
    total: u32,
    block_tokens: u32,
}

/// The blocks of one sequence, in the order of its positions. Belongs to the pool that gave it out.
pub(crate) struct Table {
    blocks: Arc<[BlockId]>,
}

impl Table {
    /// The ids, to be shared with the stages that read and write the blocks.
    pub fn blocks(&self) -> &Arc<[BlockId]> {
        &self.blocks
    }
}

impl BlockPool {
    /// `total * block_tokens` fits into 32 bits, as [`crate::EngineConfig`] checks.
    pub fn new(total: u32, block_tokens: u32) -> Self {
        Self { free: (0..total).rev().map(BlockId).collect(), total, block_tokens }
    }

    pub fn total_blocks(&self) -> u32 {
        self.total
    }

    pub fn total_tokens(&self) -> u32 {
        self.total * self.block_tokens
    }

    pub fn free_blocks(&self) -> &[BlockId] {
        &self.free
    }

    /// Tokens that can still be reserved; `n` tokens fit exactly if `n` is at most this.
    pub fn free_tokens(&self) -> u32 {
        self.free.len() as u32 * self.block_tokens
    }

    pub fn has_room(&self, tokens: u32) -> bool {
        tokens <= self.free_tokens()
    }

    /// Takes `tokens / block_tokens` blocks, rounded up; `None` if there are not enough.
    pub fn reserve(&mut self, tokens: u32) -> Option<Table> {
        let count = tokens.div_ceil(self.block_tokens) as usize;
        let rest = self.free.len().checked_sub(count)?;
        Some(Table { blocks: self.free.drain(rest..).rev().collect() })
    }

    /// Takes a table's blocks back.
    pub fn release(&mut self, table: Table) {
        self.free.extend(table.blocks.iter().rev());
        debug_assert!(self.free.len() <= self.total as usize, "a table was released into another chain's pool");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_whole_blocks_in_a_fixed_order_and_takes_them_back() {
        let mut pool = BlockPool::new(4, 16);
        let ids = |table: &Table| table.blocks().iter().map(|block| block.0).collect::<Vec<_>>();
        let (Some(a), Some(b)) = (pool.reserve(17), pool.reserve(16)) else { panic!("there is room") };
        assert_eq!((ids(&a), ids(&b), pool.free_tokens()), (vec![0, 1], vec![2], 16));
        assert!(pool.has_room(16) && !pool.has_room(17) && pool.reserve(17).is_none());
        assert_eq!(pool.free_tokens(), 16, "a refused reservation takes nothing");
        pool.release(a);
        let Some(c) = pool.reserve(33) else { panic!("there is room") };
        assert_eq!(ids(&c), [0, 1, 3]);
        pool.release(c);
        pool.release(b);
        assert_eq!(pool.free_tokens(), pool.total_tokens());
    }
}
