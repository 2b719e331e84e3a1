//! The blocks of one chain: who holds them, and which of them are free. See [`super`] for their life.

use std::sync::Arc;

use crate::builtin;
use crate::ids::{BlockId, TokenId};
use crate::limits;
use crate::line::kv::prefix::PrefixIndex;
use crate::window::Idle;

/// Chooses what is evicted: of these ends, so that so many blocks become free, while so many are. Appends indices, at least one and
/// none twice.
pub(crate) type Evict<'a> = &'a mut dyn FnMut(&[Idle], u32, u32, &mut Vec<u32>);

/// The blocks of one chain.
pub(crate) struct BlockPool {
    /// A stack: the block released last is reserved next, while it is still warm.
    free: Vec<BlockId>,
    /// Tables that hold each block.
    holders: Vec<u32>,
    index: PrefixIndex,
    /// Whether full blocks are made findable.
    caches: bool,
    /// Tables released so far: the clock by which last uses are told.
    releases: u64,
    evicted_total: u64,
    block_tokens: u32,
}

/// The blocks of one sequence, in the order of its positions. Belongs to the pool that gave it out.
pub(crate) struct Table {
    blocks: Arc<[BlockId]>,
    tenant: u32,
    /// Leading blocks that were made findable or were shared as such, the way to the next one. None when no more follow,
    /// because an equal block had been there before, or the way has been forgotten.
    findable: Option<u32>,
}

impl Table {
    /// The ids, to be shared with the stages that read and write the blocks.
    pub fn blocks(&self) -> &Arc<[BlockId]> {
        &self.blocks
    }
}

impl BlockPool {
    /// `total * block_tokens` fits into 32 bits, as [`crate::EngineConfig`] checks.
    pub fn new(total: u32, block_tokens: u32, caches: bool) -> Self {
        Self {
            free: (0..total).rev().map(BlockId).collect(),
            holders: vec![0; total as usize],
            index: PrefixIndex::new(if caches { total } else { 0 }),
            caches,
            releases: 0,
            evicted_total: 0,
            block_tokens,
        }
    }

    pub fn total_blocks(&self) -> u32 {
        self.holders.len() as u32
    }

    pub fn total_tokens(&self) -> u32 {
        self.total_blocks() * self.block_tokens
    }

    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    pub fn caches(&self) -> bool {
        self.caches
    }

    pub fn free_blocks(&self) -> &[BlockId] {
        &self.free
    }

    pub fn idle_blocks(&self) -> u32 {
        self.index.idle()
    }

    pub fn used_blocks(&self) -> u32 {
        self.total_blocks() - self.free.len() as u32 - self.idle_blocks()
    }

    /// Blocks evicted so far.
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total
    }

    /// Tables that hold a block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.holders.get(block.0 as usize).copied().unwrap_or(0)
    }

    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Tokens that can still be reserved; `n` tokens fit exactly if `n` is at most this, whatever of them is cached.
    pub fn free_tokens(&self) -> u32 {
        (self.free.len() as u32 + self.idle_blocks()) * self.block_tokens
    }

    pub fn has_room(&self, tokens: u32) -> bool {
        tokens <= self.free_tokens()
    }

    /// Tokens at the beginning of `prompt` that need not be run: whole blocks, and never the last token, whose row of
    /// logits is wanted. Changes nothing.
    pub fn cached_tokens(&self, tenant: u32, prompt: &[TokenId]) -> u32 {
        let Some((_, before_last)) = prompt.split_last() else { return 0 };
        let blocks = self.index.walk(tenant, before_last.chunks_exact(self.block_tokens as usize));
        blocks.count() as u32 * self.block_tokens
    }

    /// Takes `tokens / block_tokens` blocks, rounded up. The first of them are shared and hold `cached`, less than `tokens`
    /// and as many as [`Self::cached_tokens`] has just said. `evict` is asked when free ones run short. `None` if there is no
    /// room.
    pub fn reserve(&mut self, tokens: u32, tenant: u32, cached: &[TokenId], evict: Evict<'_>) -> Option<Table> {
        if !self.has_room(tokens) {
            return None;
        }
        let count = tokens.div_ceil(self.block_tokens) as usize;
        let chunks = cached.chunks_exact(self.block_tokens as usize);
        let mut blocks: Vec<BlockId> = self.index.walk(tenant, chunks).collect();
        // Held before any is evicted. There is room for the others: each shared block that was idle is one of `count`.
        for &block in &blocks {
            self.index.hit(block);
        }
        let findable = Some(blocks.len() as u32);
        let own = count - blocks.len();
        self.evict_for(own, evict);
        blocks.extend(self.free.drain(self.free.len() - own..).rev());
        for block in &blocks {
            self.holders[block.0 as usize] += 1;
        }
        Some(Table { blocks: blocks.into(), tenant, findable })
    }

    /// Makes the table's full blocks findable, now that `computed` tokens of its sequence have come back from the last
    /// stage. `known` are the sequence's tokens from the first on. Costs nothing until a block is full.
    pub fn publish(&mut self, table: &mut Table, computed: u32, known: impl Iterator<Item = TokenId>) {
        let (block_tokens, full) = (self.block_tokens as usize, computed / self.block_tokens);
        let Some(done) = table.findable.filter(|&done| self.caches && done < full) else { return };
        let mut known = known.skip(done as usize * block_tokens);
        for at in done as usize..full as usize {
            let tokens = known.by_ref().take(block_tokens).collect();
            let parent = at.checked_sub(1).map(|before| table.blocks[before]);
            // What follows a block that is not indexed is not either: its table would not hold the way to it, and idle
            // blocks on that way could not be evicted before it.
            if !self.index.insert(table.tenant, parent, tokens, table.blocks[at]) {
                table.findable = None;
                return;
            }
        }
        table.findable = Some(full);
    }

    /// Makes findable no more what the table's sequence has read or written, and all that was computed from it. For a
    /// sequence that failed: if its blocks are bad, they must not fail every prompt like it from now on.
    pub fn forget(&mut self, table: &Table) {
        if let Some(&first) = table.blocks.first() {
            self.index.forget(first, &mut self.free);
        }
    }

    /// Takes a table back.
    pub fn release(&mut self, table: Table) {
        self.releases += 1;
        for &block in table.blocks.iter().rev() {
            let holders = &mut self.holders[block.0 as usize];
            *holders -= 1;
            if *holders == 0 && !self.index.rest(block, self.releases) {
                self.free.push(block);
            }
        }
    }

    /// Evicts idle blocks until `blocks` are free. The caller has seen that there are as many.
    fn evict_for(&mut self, blocks: usize, evict: Evict<'_>) {
        let (mut victims, mut questions) = (Vec::new(), 0);
        while self.free.len() < blocks && self.index.idle() > 0 {
            let ends: Vec<BlockId> = self.index.ends().take(limits::EVICT_WINDOW_MAX).collect();
            let window: Vec<_> = ends.iter().filter_map(|&end| self.index.facts(end)).collect();
            victims.clear();
            let (need, free) = ((blocks - self.free.len()) as u32, self.free.len() as u32);
            if questions < limits::EVICT_QUESTIONS_MAX {
                questions += 1;
                evict(&window, need, free, &mut victims);
            } else {
                victims.extend(builtin::victims(window.len(), need));
            }
            for victim in &victims {
                // What an eviction lays bare may have to go before the next victim, so the question is put again.
                if self.evict_chain(ends[*victim as usize], blocks) || self.free.len() >= blocks {
                    break;
                }
            }
        }
    }

    /// Evicts an end and, until `blocks` are free, what is as worthless: what has been left together with it and was started on
    /// as often, from the end on. Returns whether another block is an end now.
    fn evict_chain(&mut self, mut end: BlockId, blocks: usize) -> bool {
        let worth = |facts: Option<Idle>| facts.map(|facts| (facts.last_use, facts.hits));
        loop {
            let of_end = worth(self.index.facts(end));
            let before = self.index.evict(end);
            self.free.push(end);
            self.evicted_total += 1;
            let Some(before) = before else { return false };
            if self.free.len() >= blocks || worth(self.index.facts(before)) != of_end {
                return true;
            }
            end = before;
        }
    }
}
