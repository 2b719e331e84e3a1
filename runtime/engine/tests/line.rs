//! One chain at work: micro-batches, cancels at every moment, and what comes back from devices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{VOCAB, World, config, request, undisturbed};
use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::{ChainId, RequestId};
use pointsman_engine::output::{Event, Finish};
use pointsman_engine::port::{Logits, StepPlan, StepResult};
use pointsman_engine::request::{RawRequest, Request};

/// (request, start, tokens) of each slice of the last plan.
fn last_plan(world: &World) -> Vec<(u64, u32, usize)> {
    let slices = &world.plans.last().unwrap().slices;
    slices.iter().map(|slice| (slice.request.0, slice.start, slice.tokens.len())).collect()
}

#[test]
fn prompts_run_in_order_within_a_budget_that_shrinks_beside_decodes() {
    // 16 prompt tokens alone, 6 beside decodes.
    let mut world = World::new(&config(&[(4, 80, 1)]));
    let policy = &mut Builtin::default();
    for (id, prompt) in [(0, 20), (1, 10), (2, 14)] {
        assert_eq!(world.submit(id, request(prompt, 3), policy), Ok(()));
    }
    assert_eq!(last_plan(&world), [(0, 0, 16)]);
    assert_eq!(world.plans[0].slices[0].logits, Logits::None);
    world.step(0, policy);
    // The first prompt's rest, and the budget is filled up with the next prompts.
    assert_eq!(last_plan(&world), [(0, 16, 4), (1, 0, 10), (2, 0, 2)]);
    assert_eq!(
        world.plans[1].slices.iter().map(|s| s.logits).collect::<Vec<_>>(),
        [Logits::Last, Logits::Last, Logits::None]
    );
    world.step(0, policy);
    assert_eq!(last_plan(&world), [(0, 20, 1), (1, 10, 1), (2, 2, 6)]);
    world.step(0, policy);
    assert_eq!(last_plan(&world), [(0, 21, 1), (1, 11, 1), (2, 8, 6)]);
    world.step(0, policy);
    assert_eq!(last_plan(&world), [(2, 14, 1)], "the others have their three tokens");
    let stats = world.engine.stats();
    assert_eq!((stats.chains[0].steps_total, stats.chains[0].tokens_total), (4, 16 + 16 + 8 + 8));
    assert_eq!((stats.prompt_tokens_total, stats.generated_tokens_total, stats.length_total), (44, 7, 2));
}

#[test]
fn every_stage_gets_a_share_of_the_decodes() {
    let mut world = World::new(&config(&[(8, 80, 3)]));
    let policy = &mut Builtin::default();
    for id in 0..7 {
        assert_eq!(world.submit(id, request(2, 20), policy), Ok(()));
    }
    for _ in 0..12 {
        world.step(0, policy);
        assert_eq!(world.in_flight(0), 3);
    }
    for plan in &world.plans[world.plans.len() - 6..] {
        assert!((2..=3).contains(&plan.slices.len()), "{} of 7 sequences in a micro-batch", plan.slices.len());
    }
    world.finish(policy);
    for id in 0..7 {
        assert_eq!(world.events[&RequestId(id)], undisturbed(&request(2, 20)));
    }
}

#[test]
fn streams_do_not_depend_on_stages_or_on_company() {
    let raw = RawRequest { prompt: (0..30).collect(), max_new_tokens: Some(20), ..RawRequest::default() };
    let seeded = |seed| {
        let mut raw = raw.clone();
        (raw.sampling.seed, raw.logprobs, raw.prompt_logprobs) = (seed, Some(2), true);
        Request::check(raw, common::MODEL).unwrap()
    };
    for stages in 1..=3 {
        for company in [1, 8] {
            let mut world = World::new(&config(&[(8, 200, stages)]));
            let policy = &mut Builtin::default();
            for id in 0..company {
                assert_eq!(world.submit(id, seeded(id), policy), Ok(()));
            }
            world.finish(policy);
            for id in 0..company {
                assert_eq!(
                    world.events[&RequestId(id)],
                    undisturbed(&seeded(id)),
                    "{stages} stages, {company} at once"
                );
            }
        }
    }
}

#[test]
fn a_prompt_with_logprobs_comes_in_small_pieces_and_before_any_token() {
    let mut world = World::new(&config(&[(3, 40, 1)]));
    let policy = &mut Builtin::default();
    let raw = RawRequest { prompt: vec![1; 7], prompt_logprobs: true, ..request(7, 2).raw().clone() };
    let scored = Request::check(raw, common::MODEL).unwrap();
    for id in 0..2 {
        assert_eq!(world.submit(id, scored.clone(), policy), Ok(()));
    }
    world.finish(policy);
    let pieces = |plan: &StepPlan| plan.slices.iter().map(|s| (s.request.0, s.tokens.len(), s.logits)).collect();
    let plans: Vec<Vec<_>> = world.plans.iter().map(pieces).collect();
    let (all, last) = (Logits::All, Logits::Last);
    assert_eq!(plans[..3], [vec![(0, 3, all)], vec![(0, 3, all)], vec![(0, 1, all), (1, 2, all)]]);
    assert_eq!(plans[3..], [vec![(0, 1, last), (1, 3, all)], vec![(1, 2, all)], vec![(1, 1, last)]]);
    let events = &world.events[&RequestId(0)];
    assert!(matches!(&events[0], Event::Prompt(tokens) if tokens.len() == 7 && tokens[0].is_none()));
    assert!(matches!(&events[3], Event::Done(Finish::Length)));
}

#[test]
fn a_cancel_ends_a_request_at_once_and_frees_its_blocks_when_they_are_not_in_use() {
    let mut world = World::new(&config(&[(2, 20, 1)]));
    let policy = &mut Builtin::default();
    for id in 0..3 {
        assert_eq!(world.submit(id, request(4, 4), policy), Ok(()));
    }
    let used = |world: &World| world.engine.stats().chains[0].kv_blocks_used;
    assert_eq!((world.engine.stats().waiting, used(&world)), (1, 4));
    // Waiting.
    world.cancel(2, policy);
    assert_eq!((world.done(2), world.engine.stats().waiting), (Some(&Finish::Cancelled), 0));
    // On the chain, but in no micro-batch: the first one left without it.
    world.cancel(1, policy);
    assert_eq!((world.done(1), used(&world)), (Some(&Finish::Cancelled), 2));
    // In flight.
    world.cancel(0, policy);
    assert_eq!((world.done(0), used(&world), world.engine.stats().running), (Some(&Finish::Cancelled), 2, 0));
    // Ended and unknown ones are left alone.
    world.cancel(0, policy);
    world.cancel(99, policy);
    assert_eq!(world.engine.stats().cancelled_total, 3);
    world.step(0, policy);
    assert_eq!((used(&world), world.engine.is_idle()), (0, true));
    assert_eq!(world.events[&RequestId(0)], [Event::Done(Finish::Cancelled)], "what came back is dropped");
}

#[test]
fn a_result_that_answers_nothing_is_counted_and_ignored() {
    let mut world = World::new(&config(&[(2, 20, 1)]));
    let policy = &mut Builtin::default();
    assert_eq!(world.submit(0, request(4, 2), policy), Ok(()));
    let result = world.take(0, 0).unwrap();
    for (chain, batch) in [(7, 0), (u32::MAX, 0), (0, 1), (0, u64::MAX)] {
        world.complete(StepResult { chain: ChainId(chain), batch, ..result.clone() }, policy);
    }
    world.complete(result.clone(), policy);
    world.complete(result, policy);
    assert_eq!(world.engine.stats().stale_results_total, 5);
    world.finish(policy);
    assert_eq!(world.events[&RequestId(0)], undisturbed(&request(4, 2)));
}

#[test]
fn a_step_that_failed_fails_its_sequences_and_no_others() {
    type Spoil = fn(&mut StepResult);
    let row = VOCAB as usize;
    let cases: [(Spoil, &str); 4] = [
        (|result| result.logits = Err("out of memory".into()), "out of memory"),
        (|result| result.logits = Ok(Vec::new()), "the device returned 0 logits instead of 1 rows of 48"),
        (|result| result.logits.as_mut().unwrap().push(0.0), "the device returned 49 logits instead of 1 rows of 48"),
        (|result| result.logits.as_mut().unwrap().fill(f32::NAN), "no token can be chosen"),
    ];
    for (spoil, message) in cases {
        let mut world = World::new(&config(&[(2, 20, 1)]));
        let policy = &mut Builtin::default();
        assert_eq!(world.submit(0, request(4, 2), policy), Ok(()));
        assert_eq!(world.submit(1, request(4, 2), policy), Ok(()));
        let mut result = world.take(0, 0).unwrap();
        assert_eq!(result.logits.as_ref().map(Vec::len), Ok(row));
        spoil(&mut result);
        world.complete(result, policy);
        assert!(matches!(world.done(0), Some(Finish::Failed(why)) if why.contains(message)), "{:?}", world.done(0));
        world.finish(policy);
        assert_eq!(world.events[&RequestId(1)], undisturbed(&request(4, 2)));
        assert_eq!(world.engine.stats().failed_total, 1);
    }
}

#[test]
fn stop_tokens_end_a_request_but_not_too_soon() {
    let stopped = |min_new_tokens| {
        let raw =
            RawRequest { stop_tokens: (0..VOCAB).step_by(2).collect(), min_new_tokens, ..request(4, 40).raw().clone() };
        let request = Request::check(raw, common::MODEL).unwrap();
        let mut world = World::new(&config(&[(2, 20, 1)]));
        assert_eq!(world.submit(0, request.clone(), &mut Builtin::default()), Ok(()));
        world.finish(&mut Builtin::default());
        assert_eq!(world.events[&RequestId(0)], undisturbed(&request));
        world.events.remove(&RequestId(0)).unwrap()
    };
    let events = stopped(0);
    assert_eq!(events.last(), Some(&Event::Done(Finish::Stop)));
    let events = stopped(20);
    assert!(events.len() > 20);
    assert!(events.iter().all(|event| !matches!(event, Event::Token { id, .. } if id % 2 == 0)));
}
