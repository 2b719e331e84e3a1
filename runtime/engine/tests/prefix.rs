//! The prefix cache at work in an engine: what is skipped, who shares, and what gives way to whom.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{BLOCK_TOKENS, VOCAB, World, caching, config, request, undisturbed};
use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::RequestId;
use pointsman_engine::output::{Event, Finish};
use pointsman_engine::port::{Logits, SeqSlice};
use pointsman_engine::request::{RawRequest, Request};

/// A greedy request that differs from [`request`] in what `change` changes.
fn changed(prompt: u32, new: u32, change: impl FnOnce(&mut RawRequest)) -> Request {
    let mut raw = request(prompt, new).raw().clone();
    change(&mut raw);
    Request::check(raw, common::MODEL).unwrap()
}

/// The slices of a request, in order.
fn slices(world: &World, id: u64) -> Vec<&SeqSlice> {
    world.plans.iter().flat_map(|plan| &plan.slices).filter(|slice| slice.request == RequestId(id)).collect()
}

/// Runs a request to its end, checks its stream, and returns the tokens of its prompt that were cached.
fn run(world: &mut World, id: u64, request: &Request) -> u32 {
    assert_eq!(world.submit(id, request.clone(), &mut Builtin::default()), Ok(()));
    world.finish(&mut Builtin::default());
    assert_eq!(world.events[&RequestId(id)], undisturbed(request), "request {id}");
    let (cached, first) = (world.started[&RequestId(id)], slices(world, id)[0]);
    assert_eq!((first.start, first.tokens[0]), (cached, request.raw().prompt[cached as usize]));
    cached
}

#[test]
fn a_prompt_starts_behind_what_is_cached_of_it() {
    let mut world = World::new(&caching(&[(4, 40, 2)]));
    assert_eq!(run(&mut world, 0, &request(11, 6)), 0);
    // 11 prompt tokens and 5 generated ones have been run: four whole blocks.
    assert_eq!(run(&mut world, 1, &request(11, 9)), 8);
    assert_eq!(run(&mut world, 2, &request(30, 2)), 8);
    assert_eq!(run(&mut world, 3, &request(30, 2)), 28);
    let next_turn = |prompt: &mut RawRequest| {
        let token = |event: &Event| if let Event::Token { id, .. } = event { Some(*id) } else { None };
        prompt.prompt.extend(undisturbed(&request(11, 6)).iter().filter_map(token).chain([7, 8]));
    };
    assert_eq!(run(&mut world, 4, &changed(11, 4, next_turn)), 16, "what was generated is found, too");
    assert_eq!(run(&mut world, 5, &changed(30, 2, |raw| raw.prompt[5] = 47)), 4);
    let stats = world.engine.stats();
    assert_eq!(stats.prefix_queries_tokens_total, 11 + 11 + 30 + 30 + 19 + 30);
    assert_eq!(stats.prefix_hits_tokens_total, 8 + 8 + 28 + 16 + 4);
    assert_eq!((stats.prefix_evicted_blocks_total, stats.chains[0].kv_blocks_used), (0, 0));
    assert_eq!(stats.chains[0].tokens_total, stats.prompt_tokens_total - 64 + stats.generated_tokens_total - 6);
}

#[test]
fn the_last_token_of_a_prompt_is_always_run() {
    let mut world = World::new(&caching(&[(4, 40, 1)]));
    assert_eq!(run(&mut world, 0, &request(4, 1)), 0);
    assert_eq!(run(&mut world, 1, &request(5, 1)), 4);
    assert_eq!((slices(&world, 1)[0].tokens.len(), slices(&world, 1)[0].logits), (1, Logits::Last));
    assert_eq!(run(&mut world, 2, &request(12, 1)), 4);
    assert_eq!(run(&mut world, 3, &request(12, 1)), 8, "not all three of its blocks");
    assert_eq!(run(&mut world, 4, &request(1, 1)), 0);
}

#[test]
fn a_sequence_that_runs_shares_what_has_come_back() {
    let mut world = World::new(&caching(&[(4, 40, 1)]));
    let policy = &mut Builtin::default();
    let used = |world: &World| world.engine.stats().chains[0].kv_blocks_used;
    assert_eq!(world.submit(0, request(40, 8), policy), Ok(()));
    // The first 16 tokens are in flight, none has come back.
    assert_eq!(world.submit(1, request(40, 8), policy), Ok(()));
    assert_eq!((world.started[&RequestId(1)], used(&world)), (0, 24));
    world.step(0, policy);
    assert_eq!(world.submit(2, request(40, 8), policy), Ok(()));
    assert_eq!((world.started[&RequestId(2)], used(&world)), (16, 24 + 12 - 4));
    // All three write the same tokens into blocks of their own.
    world.finish(policy);
    for id in 0..3 {
        assert_eq!(world.events[&RequestId(id)], undisturbed(&request(40, 8)));
    }
    // 47 tokens were run, so that the last block is not full.
    let stats = &world.engine.stats().chains[0];
    assert_eq!((stats.kv_blocks_used, stats.kv_blocks_idle), (0, 11));
}

#[test]
fn a_cancelled_sequence_leaves_what_has_come_back_and_keeps_what_is_in_flight() {
    let mut world = World::new(&caching(&[(4, 14, 1)]));
    let policy = &mut Builtin::default();
    assert_eq!(world.submit(0, request(40, 8), policy), Ok(()));
    world.step(0, policy);
    world.cancel(0, policy);
    // Its micro-batch still writes; until it is back, nothing of it is idle.
    let blocks =
        |world: &World| (world.engine.stats().chains[0].kv_blocks_used, world.engine.stats().chains[0].kv_blocks_idle);
    assert_eq!(blocks(&world), (12, 0));
    assert_eq!(world.submit(1, request(40, 1), policy), Ok(()), "it waits for room");
    assert_eq!(world.engine.stats().waiting, 1);
    world.step(0, policy);
    assert_eq!((world.started[&RequestId(1)], blocks(&world)), (16, (11, 0)));
    world.finish(policy);
    assert_eq!(world.events[&RequestId(1)], undisturbed(&request(40, 1)));
}

#[test]
fn tenants_do_not_share() {
    let mut world = World::new(&caching(&[(4, 60, 1)]));
    let of = |tenant| changed(20, 2, |raw| raw.tenant = tenant);
    assert_eq!([0, 1, 2].map(|tenant| run(&mut world, u64::from(tenant), &of(tenant))), [0, 0, 0]);
    assert_eq!([0, 1, 2].map(|tenant| run(&mut world, 10 + u64::from(tenant), &of(tenant))), [16; 3]);
}

#[test]
fn a_prompt_whose_log_probs_are_wanted_runs_whole_and_serves_others() {
    let mut world = World::new(&caching(&[(4, 60, 1)]));
    let scored = changed(20, 2, |raw| raw.prompt_logprobs = true);
    assert_eq!(
        [run(&mut world, 0, &scored), run(&mut world, 1, &scored), run(&mut world, 2, &request(20, 2))],
        [0, 0, 16]
    );
    assert_eq!(world.engine.stats().prefix_queries_tokens_total, 20, "the others have not asked");
}

#[test]
fn without_the_cache_nothing_is_kept() {
    let mut world = World::new(&config(&[(4, 40, 1)]));
    assert_eq!([run(&mut world, 0, &request(20, 2)), run(&mut world, 1, &request(20, 2))], [0, 0]);
    let stats = world.engine.stats();
    assert_eq!((stats.prefix_queries_tokens_total, stats.chains[0].kv_blocks_idle), (0, 0));
}

#[test]
fn idle_blocks_give_way_the_oldest_first() {
    let mut world = World::new(&caching(&[(4, 20, 1)]));
    let of = |first, prompt, new| changed(prompt, new, |raw| raw.prompt[0] = first);
    for first in [40, 41, 42] {
        assert_eq!(run(&mut world, u64::from(first), &of(first, 24, 1)), 0);
    }
    let stats = world.engine.stats();
    assert_eq!((stats.chains[0].kv_blocks_idle, stats.prefix_evicted_blocks_total), (18, 0));
    assert_eq!(world.engine.snapshot().chains[0].free_tokens, 20 * BLOCK_TOKENS, "they are free to whoever needs them");
    // It needs all blocks but those of 42, and takes them from the end of the oldest.
    assert_eq!(run(&mut world, 1, &of(43, 40, 15)), 0);
    assert_eq!(world.engine.stats().prefix_evicted_blocks_total, 12);
    assert_eq!(run(&mut world, 2, &of(42, 24, 1)), 20);
    assert_eq!(run(&mut world, 3, &of(41, 24, 1)), 0);
    // A request of all the chain's tokens fits, and what it shares is not evicted for the rest of it.
    assert_eq!(run(&mut world, 4, &of(42, 40, 40)), 24);
    assert_eq!(world.engine.stats().chains[0].kv_blocks_idle, 19);
}

#[test]
fn what_a_failed_step_has_touched_is_not_served() {
    for cancelled in [false, true] {
        let mut world = World::new(&caching(&[(4, 60, 1)]));
        let policy = &mut Builtin::default();
        run(&mut world, 0, &request(20, 2));
        run(&mut world, 1, &changed(20, 2, |raw| raw.prompt[0] = 47));
        assert_eq!(world.submit(2, request(24, 2), policy), Ok(()));
        assert_eq!(world.started[&RequestId(2)], 20);
        if cancelled {
            world.cancel(2, policy);
        }
        let mut result = world.take(0, 0).unwrap();
        result.logits = Err("the device is gone".to_owned());
        world.complete(result, policy);
        assert!(matches!(world.done(2), Some(Finish::Failed(_) | Finish::Cancelled)));
        assert_eq!(run(&mut world, 3, &request(20, 2)), 0);
        assert_eq!(run(&mut world, 4, &changed(20, 2, |raw| raw.prompt[0] = 47)), 16, "another prompt is served");
    }
}

#[test]
fn penalties_and_seeds_see_the_whole_prompt() {
    let sampled = |seed| {
        changed(20, 12, |raw| {
            raw.sampling.temperature = 1.0;
            (raw.sampling.seed, raw.sampling.repetition_penalty) = (seed, 1.5);
            raw.logprobs = Some(3);
            raw.prompt[1] = VOCAB - 1;
        })
    };
    let mut world = World::new(&caching(&[(4, 60, 2)]));
    assert_eq!([0, 1, 2].map(|seed| run(&mut world, seed, &sampled(seed))), [0, 16, 16]);
}
