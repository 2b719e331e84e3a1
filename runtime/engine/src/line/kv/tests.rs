//! Blocks and the prefix cache, by example and against a plain twin that searches everything.

use super::{BlockPool, Table};
use crate::builtin;
use crate::ids::{BlockId, TokenId};
use crate::random;
use crate::window::Idle;

fn ids(table: &Table) -> Vec<u32> {
    table.blocks().iter().map(|block| block.0).collect()
}

fn least_recently_used(window: &[Idle], need: u32, _free: u32, victims: &mut Vec<u32>) {
    victims.extend(builtin::victims(window.len(), need));
}

/// Reserves `tokens` of a prompt that nothing is known of.
fn reserve(pool: &mut BlockPool, tokens: u32) -> Option<Table> {
    pool.reserve(tokens, 0, &[], &mut least_recently_used)
}

/// Reserves `tokens` behind what is cached of `prompt`; `None` if there is no room.
fn start(pool: &mut BlockPool, tenant: u32, prompt: &[TokenId], tokens: u32) -> Option<Table> {
    let cached = pool.cached_tokens(tenant, prompt);
    pool.reserve(tokens, tenant, &prompt[..cached as usize], &mut least_recently_used)
}

/// The whole life of a sequence of these tokens.
fn pass(pool: &mut BlockPool, tenant: u32, tokens: &[TokenId]) {
    let mut table = start(pool, tenant, tokens, tokens.len() as u32).unwrap();
    pool.publish(&mut table, tokens.len() as u32, tokens.iter().copied());
    pool.release(table);
}

#[test]
fn reserves_whole_blocks_in_a_fixed_order_and_takes_them_back() {
    for caches in [false, true] {
        let mut pool = BlockPool::new(4, 16, caches);
        let (Some(a), Some(b)) = (reserve(&mut pool, 17), reserve(&mut pool, 16)) else { panic!("there is room") };
        assert_eq!((ids(&a), ids(&b), pool.free_tokens()), (vec![0, 1], vec![2], 16));
        assert!(pool.has_room(16) && !pool.has_room(17) && reserve(&mut pool, 17).is_none());
        assert_eq!(pool.free_tokens(), 16, "a refused reservation takes nothing");
        pool.release(a);
        let Some(c) = reserve(&mut pool, 33) else { panic!("there is room") };
        assert_eq!(ids(&c), [0, 1, 3]);
        pool.release(c);
        pool.release(b);
        assert_eq!((pool.free_tokens(), pool.idle_blocks()), (pool.total_tokens(), 0));
    }
}

#[test]
fn full_blocks_are_shared_from_when_they_have_come_back() {
    let mut pool = BlockPool::new(10, 2, true);
    let prompt = [1, 2, 3, 4, 5];
    let mut a = start(&mut pool, 0, &prompt, 7).unwrap();
    assert_eq!(pool.cached_tokens(0, &prompt), 0);
    pool.publish(&mut a, 3, prompt.iter().copied());
    assert_eq!(pool.cached_tokens(0, &prompt), 2, "half a block is none");
    pool.publish(&mut a, 6, [1, 2, 3, 4, 5, 9].into_iter());
    assert_eq!(pool.cached_tokens(0, &prompt), 4);
    assert_eq!(pool.cached_tokens(0, &[1, 2, 3, 4, 5, 9, 9]), 6, "what was generated is found too");
    assert_eq!(pool.cached_tokens(0, &[1, 2, 3, 4]), 2, "the last token is always run");
    assert_eq!([pool.cached_tokens(0, &[1, 2, 3, 9, 5]), pool.cached_tokens(0, &[3, 4, 5])], [2, 0]);
    assert_eq!([pool.cached_tokens(1, &prompt), pool.cached_tokens(0, &[])], [0, 0], "tenants share nothing");

    // While the first runs, a second one shares, and both hold the blocks.
    let b = start(&mut pool, 0, &prompt, 8).unwrap();
    assert_eq!((ids(&a), ids(&b)), (vec![0, 1, 2, 3], vec![0, 1, 4, 5]));
    assert_eq!([BlockId(0), BlockId(2)].map(|block| pool.holders(block)), [2, 1]);
    pool.release(a);
    assert_eq!((pool.used_blocks(), pool.idle_blocks(), pool.free_tokens()), (4, 1, 12));
    pool.release(b);
    assert_eq!((pool.used_blocks(), pool.idle_blocks(), pool.free_tokens()), (0, 3, 20));
}

#[test]
fn an_equal_block_is_not_indexed_nor_what_follows_it() {
    let mut pool = BlockPool::new(9, 2, true);
    let (mut a, mut b) = (reserve(&mut pool, 6).unwrap(), reserve(&mut pool, 6).unwrap());
    pool.publish(&mut a, 2, [1, 2].into_iter());
    pool.publish(&mut b, 4, [1, 2, 3, 4].into_iter());
    assert_eq!(pool.cached_tokens(0, &[1, 2, 3, 4, 5]), 2);
    assert_eq!(ids(&b), [3, 4, 5], "it keeps its own blocks");
    pool.release(b);
    assert_eq!((pool.idle_blocks(), pool.free_blocks().len()), (0, 6));
    pool.publish(&mut a, 4, [1, 2, 3, 4].into_iter());
    assert_eq!(pool.cached_tokens(0, &[1, 2, 3, 4, 5]), 4);
}

#[test]
fn evicts_the_least_recently_used_from_the_end() {
    let mut pool = BlockPool::new(8, 2, true);
    pass(&mut pool, 0, &[1, 2, 3, 4, 5, 6]);
    pass(&mut pool, 0, &[1, 2, 7, 8]);
    pass(&mut pool, 5, &[1, 2, 3, 4]);
    assert_eq!((pool.idle_blocks(), pool.free_tokens()), (6, 16));
    let cached = |pool: &BlockPool| {
        let tokens = |tenant, prompt: &[TokenId]| pool.cached_tokens(tenant, prompt);
        [tokens(0, &[1, 2, 3, 4, 5, 6, 0]), tokens(0, &[1, 2, 7, 8, 0]), tokens(5, &[1, 2, 3, 4, 0])]
    };
    assert_eq!(cached(&pool), [6, 4, 4]);
    // Two are free, the third is taken from the end of the oldest, and so on.
    for (blocks, left, evicted) in [(3, [4, 4, 4], 1), (4, [2, 4, 4], 2), (5, [2, 2, 4], 3), (7, [0, 0, 2], 5)] {
        let table = reserve(&mut pool, blocks * 2).unwrap();
        assert_eq!((cached(&pool), pool.evicted_total()), (left, evicted));
        pool.release(table);
    }
    // A hit makes it the most recently used.
    pass(&mut pool, 0, &[1, 2, 3, 4]);
    let hit = start(&mut pool, 5, &[1, 2, 0], 3).unwrap();
    pool.release(hit);
    let table = reserve(&mut pool, 14).unwrap();
    assert_eq!(cached(&pool), [0, 0, 2]);
    pool.release(table);
}

#[test]
fn what_was_computed_from_a_failed_sequence_is_forgotten() {
    let mut pool = BlockPool::new(9, 2, true);
    pass(&mut pool, 0, &[1, 2, 3, 4]);
    pass(&mut pool, 0, &[8, 9]);
    let bad = start(&mut pool, 0, &[1, 2, 5], 4).unwrap();
    let mut good = start(&mut pool, 0, &[1, 2, 3, 4, 5], 8).unwrap();
    pool.forget(&bad);
    pool.release(bad);
    assert_eq!([pool.cached_tokens(0, &[1, 2, 3]), pool.cached_tokens(0, &[8, 9, 1])], [0, 2]);
    // One that runs on keeps its blocks, but nobody finds them.
    assert_eq!((pool.used_blocks(), pool.idle_blocks()), (4, 1));
    pool.publish(&mut good, 6, [1, 2, 3, 4, 5, 6].into_iter());
    pool.release(good);
    assert_eq!((pool.cached_tokens(0, &[1, 2, 3]), pool.free_blocks().len()), (0, 8));
}

/// The plain twin: cached sequences of whole blocks as lists of tokens, with the time of their last use while idle.
#[derive(Default)]
struct Twin {
    cached: Vec<(Vec<TokenId>, u64)>,
    releases: u64,
}

const BLOCK: usize = 2;

impl Twin {
    fn cached_tokens(&self, prompt: &[TokenId]) -> usize {
        let known = |tokens: &&[TokenId]| self.cached.iter().any(|(cached, _)| cached == tokens);
        let starts = (0..prompt.len()).step_by(BLOCK).skip(1).map(|end| &prompt[..end]);
        starts.take_while(known).count() * BLOCK
    }

    /// A whole life, with all blocks published.
    fn pass(&mut self, tokens: &[TokenId], total: usize) {
        self.releases += 1;
        let hit = self.cached_tokens(tokens);
        let (blocks, full) = (tokens.len().div_ceil(BLOCK), tokens.len() / BLOCK * BLOCK);
        let held = |cached: &[TokenId]| tokens[..hit].starts_with(cached);
        while self.cached.iter().filter(|(cached, _)| !held(cached)).count() + blocks > total {
            let oldest = self.cached.iter().enumerate().filter(|(_, (cached, _))| !held(cached));
            let oldest = oldest.min_by_key(|(_, (cached, at))| (*at, std::cmp::Reverse(cached.len())));
            self.cached.remove(oldest.unwrap().0);
        }
        let equal_from =
            (hit..full).step_by(BLOCK).find(|at| self.cached.iter().any(|(c, _)| *c == tokens[..at + BLOCK]));
        for end in (BLOCK..=equal_from.unwrap_or(full)).step_by(BLOCK) {
            match self.cached.iter_mut().find(|(cached, _)| *cached == tokens[..end]) {
                Some((_, at)) => *at = self.releases,
                None => self.cached.push((tokens[..end].to_vec(), self.releases)),
            }
        }
    }
}

#[test]
fn caches_and_evicts_like_the_plain_twin() {
    for seed in 0..20 {
        let mut thrown = 0;
        let mut below = |n: u64| {
            thrown += 1;
            random::bits(seed, thrown) % n
        };
        let (mut pool, mut twin) = (BlockPool::new(12, BLOCK as u32, true), Twin::default());
        let mut hits = 0;
        for _ in 0..500 {
            // Few different tokens, so that prompts begin alike.
            let tokens: Vec<TokenId> = (0..1 + below(16)).map(|_| below(2) as u32).collect();
            let cached = pool.cached_tokens(0, &tokens) as usize;
            assert_eq!(cached, twin.cached_tokens(&tokens), "seed {seed}, {tokens:?}");
            hits += cached;
            pass(&mut pool, 0, &tokens);
            twin.pass(&tokens, 12);
            assert_eq!(pool.idle_blocks() as usize, twin.cached.len(), "seed {seed}, {tokens:?}");
        }
        assert!(hits > 500 && pool.evicted_total() > 100, "{hits} {}", pool.evicted_total());
    }
}

#[test]
fn what_fits_by_the_rule_can_be_reserved_and_nothing_else() {
    let (mut refused, mut shared_when_full) = (0, 0);
    for seed in 0..40 {
        let mut thrown = 0;
        let mut below = |n: u64| {
            thrown += 1;
            random::bits(1000 + seed, thrown) % n
        };
        let mut pool = BlockPool::new(16, 4, seed % 4 > 0);
        let mut running: Vec<(Table, Vec<TokenId>)> = Vec::new();
        for _ in 0..600 {
            match below(3) {
                0 if !running.is_empty() => {
                    let (table, _) = running.swap_remove(below(running.len() as u64) as usize);
                    if below(20) == 0 {
                        pool.forget(&table);
                    }
                    pool.release(table);
                }
                1 if !running.is_empty() => {
                    let at = below(running.len() as u64) as usize;
                    let (table, tokens) = &mut running[at];
                    pool.publish(table, tokens.len() as u32, tokens.iter().copied());
                }
                _ => {
                    let tenant = below(2) as u32;
                    let prompt: Vec<TokenId> = (0..1 + below(20)).map(|at| (at + below(30) / 29) as u32).collect();
                    let fits = pool.free_tokens();
                    let need = if below(3) == 0 { fits + below(2) as u32 } else { below(12) as u32 };
                    let need = need.max(prompt.len() as u32 + 1);
                    let cached = pool.cached_tokens(tenant, &prompt);
                    let table = start(&mut pool, tenant, &prompt, need);
                    assert_eq!(table.is_some(), need <= fits, "{need} of {fits}, {cached} cached");
                    refused += u32::from(table.is_none());
                    let Some(table) = table else { continue };
                    assert_eq!(table.blocks().len() as u32, need.div_ceil(4));
                    shared_when_full += u32::from(cached > 0 && need == fits);
                    running.push((table, prompt));
                }
            }
        }
        while let Some((table, _)) = running.pop() {
            pool.release(table);
        }
        assert_eq!((pool.used_blocks(), pool.free_tokens()), (0, pool.total_tokens()));
    }
    assert!(refused > 1000 && shared_when_full > 100, "{refused} {shared_when_full}");
}
