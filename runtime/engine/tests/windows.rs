//! The slots that are asked with a window: whatever a policy answers, every request gets the tokens that it would get alone, in
//! bounded time; and an answer that can be followed is followed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

mod common;

use common::{CONTEXT, World, caching, config, request, undisturbed};
use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::ids::RequestId;
use pointsman_engine::limits::PASSED_MAX;
use pointsman_engine::port::{Policies, RoutePolicy};
use pointsman_engine::random;
use pointsman_engine::request::{RawRequest, Request};
use pointsman_engine::snapshot::Snapshot;
use pointsman_engine::window::{Ask, Kind, Order, WindowPolicy};

type Mind = Box<dyn FnMut(&Ask, &[u64], &mut Vec<u64>) -> Result<(), Fault>>;

/// A policy that answers as it is told to, and notes what it is told.
struct Probe {
    mind: Mind,
    started: bool,
    told: Vec<u64>,
    seq: u64,
    asked: u64,
    refused: Vec<FaultClass>,
    stalled: Vec<RequestId>,
}

impl Probe {
    fn new(mind: impl FnMut(&Ask, &[u64], &mut Vec<u64>) -> Result<(), Fault> + 'static) -> Self {
        let (told, refused, stalled) = (Vec::new(), Vec::new(), Vec::new());
        Self { mind: Box::new(mind), started: false, told, seq: 0, asked: 0, refused, stalled }
    }
}

impl WindowPolicy for Probe {
    fn wants_snapshot(&self) -> bool {
        !self.started
    }

    fn init(&mut self, _snapshot: &Snapshot) -> Result<(), Fault> {
        self.started = true;
        Ok(())
    }

    fn apply(&mut self, seq: u64, words: &[u64]) -> Result<(), Fault> {
        self.told.extend(words);
        self.seq += words.len() as u64 / 2;
        assert_eq!(seq, self.seq, "events are numbered without gaps");
        Ok(())
    }

    fn ask(&mut self, ask: &Ask, window: &[u64], answer: &mut Vec<u64>) -> Result<(), Fault> {
        assert!(self.started && answer.is_empty() && !window.is_empty());
        self.asked += 1;
        (self.mind)(ask, window, answer)
    }

    fn refused(&mut self, why: &Fault) {
        self.refused.push(why.class);
    }

    fn stalled(&mut self, request: RequestId) {
        self.stalled.push(request);
    }
}

#[derive(Default)]
struct Slots {
    route: Builtin,
    batch: Option<Probe>,
    cache: Option<Probe>,
}

impl Policies for Slots {
    fn route(&mut self) -> &mut dyn RoutePolicy {
        &mut self.route
    }

    fn batch(&mut self) -> Option<&mut dyn WindowPolicy> {
        self.batch.as_mut().map(|it| it as _)
    }

    fn cache(&mut self) -> Option<&mut dyn WindowPolicy> {
        self.cache.as_mut().map(|it| it as _)
    }
}

fn batch(mind: impl FnMut(&Ask, &[u64], &mut Vec<u64>) -> Result<(), Fault> + 'static) -> Slots {
    Slots { batch: Some(Probe::new(mind)), ..Slots::default() }
}

fn hold(index: usize) -> u64 {
    Order::Hold(index as u32).encode()
}

fn run(index: usize, tokens: u32) -> u64 {
    Order::Run { index: index as u32, tokens }.encode()
}

/// Orders at random, most of which can be followed.
fn anything(seed: u64) -> impl FnMut(&Ask, &[u64], &mut Vec<u64>) -> Result<(), Fault> {
    move |ask, window, answer| {
        let draw = |n: u64, below: u64| random::bits(seed ^ n, ask.rnd) % below;
        let entries = window.len() / Kind::Step.words();
        for index in 0..entries {
            match draw(index as u64, 5) {
                0 => answer.push(hold(index)),
                1 => answer.insert(draw(99, answer.len() as u64 + 1) as usize, run(index, 0)),
                2 => answer.push(run(index, 1 + draw(98, 4) as u32)),
                _ => {}
            }
        }
        match draw(97, 40) {
            0 => answer.push(u64::MAX),
            1 => return Err(Fault::new(FaultClass::Trap, "on purpose")),
            _ => {}
        }
        Ok(())
    }
}

/// A request of a tenant of its own size, with log-probs of the prompt now and then.
fn mixed(id: u64) -> Request {
    let mut raw = RawRequest {
        prompt: (0..1 + random::bits(id, 1) % 40).map(|i| (random::bits(id, i + 9) % 40) as u32).collect(),
        max_new_tokens: Some(1 + (random::bits(id, 2) % 20) as u32),
        tenant: (id % 3) as u32,
        prompt_logprobs: id.is_multiple_of(7),
        ..RawRequest::default()
    };
    raw.sampling.temperature = 0.0;
    raw.logprobs = raw.prompt_logprobs.then_some(1);
    Request::check(raw, common::MODEL).unwrap()
}

#[test]
fn whatever_a_batch_policy_answers_every_request_gets_its_own_tokens() {
    for (seed, stages) in (0..12).zip([1, 1, 2, 3].into_iter().cycle()) {
        let mut world = World::new(&config(&[(8, 200, stages)]));
        let mut slots = batch(anything(seed));
        for id in 0..16 {
            drop(world.submit(id, mixed(id), &mut slots));
            world.step(0, &mut slots);
        }
        world.finish(&mut slots);
        let mut tokens = [0, 0];
        for (id, events) in &world.events {
            assert_eq!(*events, undisturbed(&mixed(id.0)), "seed {seed}, {stages} stages, {id:?}");
            tokens[0] += u64::from(mixed(id.0).prompt_tokens());
            // The last token is never run.
            tokens[1] += events.len() as u64 - 2 - u64::from(mixed(id.0).raw().prompt_logprobs);
        }
        let probe = slots.batch.unwrap();
        assert_eq!(probe.asked, world.engine.stats().batch.decisions_total, "each micro-batch was asked about");
        let faults = world.engine.stats().batch.fallbacks_total;
        assert_eq!(faults[FaultClass::Invalid.index()], probe.refused.len() as u64);
        let served = probe.told.chunks(2).fold([0, 0], |[prompts, new], event| {
            assert!(event[0] >> 56 == 1 && event[0] as u32 <= 2, "{event:x?}");
            [prompts + (event[1] >> 32), new + (event[1] & 0xffff_ffff)]
        });
        // What came back after the last question has not been told.
        assert!(served[0] <= tokens[0] && served[1] <= tokens[1], "{served:?} of {tokens:?}");
        assert!(served[0] + 40 >= tokens[0] && served[1] + 10 >= tokens[1], "{served:?} of {tokens:?}");
    }
}

#[test]
fn who_is_named_first_gets_its_first_token_first() {
    let firsts = |slots: &mut Slots| {
        let mut world = World::new(&config(&[(4, 200, 1)]));
        // Something is in flight, so that the two others are ready together.
        for (id, prompt) in [(0, 1), (1, 40), (2, 5)] {
            world.submit(id, request(prompt, 20), slots).unwrap();
        }
        let has_token = |world: &World, id| world.events.get(&RequestId(id)).is_some_and(|events| !events.is_empty());
        while !has_token(&world, 1) && !has_token(&world, 2) {
            world.step(0, slots);
        }
        (has_token(&world, 1), has_token(&world, 2))
    };
    assert_eq!(firsts(&mut Slots::default()), (true, false), "in order of dispatch");
    let shortest = |_: &Ask, window: &[u64], answer: &mut Vec<u64>| {
        let mut prompts: Vec<(u64, usize)> =
            (0..).zip(window.chunks(8)).map(|(at, it)| (it[3] & 0xffff_ffff, at)).collect();
        prompts.sort_unstable();
        answer.extend(prompts.iter().map(|(_, at)| run(*at, 0)));
        Ok(())
    };
    assert_eq!(firsts(&mut batch(shortest)), (false, true), "the shortest prompt first");
}

#[test]
fn to_hold_everything_is_no_answer() {
    let mut world = World::new(&config(&[(4, 200, 1)]));
    let mut slots = batch(|_, window, answer| {
        answer.extend((0..window.len() / 8).map(hold));
        Ok(())
    });
    for id in 0..3 {
        world.submit(id, request(5, 5), &mut slots).unwrap();
    }
    world.finish(&mut slots);
    assert_eq!(world.events.len(), 3);
    let stats = world.engine.stats().batch;
    assert_eq!(stats.fallbacks_total.iter().sum::<u64>(), stats.decisions_total, "the builtin decided all of it");
}

#[test]
fn who_is_always_held_runs_in_the_end() {
    let mut world = World::new(&config(&[(4, 800, 1)]));
    let mut slots = batch(|_, window, answer| {
        let one = window.chunks(8).position(|entry| entry[0] == 1);
        answer.extend(one.filter(|_| window.len() > 8).map(hold));
        Ok(())
    });
    let long = request(1, CONTEXT - 1);
    for id in 0..3 {
        world.submit(id, if id == 1 { request(1, 1) } else { long.clone() }, &mut slots).unwrap();
    }
    let mut steps = 0;
    while world.done(1).is_none() {
        world.step(0, &mut slots);
        steps += 1;
    }
    assert!((PASSED_MAX..PASSED_MAX + 5).contains(&steps), "{steps}");
    assert_eq!(slots.batch.as_ref().unwrap().stalled, [RequestId(1)]);
    let stats = world.engine.stats();
    assert_eq!((stats.passed_over_total, stats.batch.fallbacks_total[FaultClass::Stall.index()]), (1, 1));
    world.finish(&mut slots);
}

#[test]
fn a_prompt_that_is_run_a_token_at_a_time_is_passed_over_all_the_same() {
    let mut world = World::new(&config(&[(4, 800, 1)]));
    // The long prompt gets one token of the budget, and each short one that comes overtakes it.
    let mut slots = batch(|_, window, answer| {
        let prompt = |id: u64| window.chunks(8).position(|entry| entry[0] == id && entry[3] & 0xffff_ffff > 1);
        answer.extend(prompt(0).map(|index| run(index, 1)));
        Ok(())
    });
    world.submit(0, request(CONTEXT - 10, 1), &mut slots).unwrap();
    let (mut steps, mut id) = (0, 1);
    while world.done(0).is_none() {
        drop(world.submit(id, request(4, 1), &mut slots));
        world.step(0, &mut slots);
        (steps, id) = (steps + 1, id + 1);
    }
    assert!(steps <= PASSED_MAX + 20, "{steps}");
    assert!(world.engine.stats().passed_over_total > 0);
    world.finish(&mut slots);
}

/// Prompts of two blocks, each the beginning of all requests with its number, through a cache that holds not even two of them beside the one that runs.
fn hits(slots: &mut Slots, prompts: &[u32]) -> u64 {
    let mut world = World::new(&caching(&[(1, 5, 1)]));
    for (id, prompt) in (0..).zip(prompts) {
        let mut raw = RawRequest { prompt: vec![*prompt; 9], max_new_tokens: Some(1), ..RawRequest::default() };
        raw.sampling.temperature = 0.0;
        world.submit(id, Request::check(raw, common::MODEL).unwrap(), slots).unwrap();
        world.finish(slots);
    }
    world.engine.stats().prefix_hits_tokens_total
}

#[test]
fn a_cache_policy_chooses_what_is_given_up() {
    // One more than there is room for, in turns: the worst for the least recently used.
    let turns: Vec<u32> = (0..12).map(|i| i % 3).collect();
    assert_eq!(hits(&mut Slots::default(), &turns), 0);
    let newest = Probe::new(|_, window, answer| {
        answer.push(window.len() as u64 / 4 - 1);
        Ok(())
    });
    let mut slots = Slots { cache: Some(newest), ..Slots::default() };
    assert!(hits(&mut slots, &turns) > 20, "to give up the newest keeps the others");
    assert!(slots.cache.unwrap().refused.is_empty());
}

#[test]
fn wrong_victims_are_replaced_by_the_builtins() {
    let turns: Vec<u32> = (0..12).collect();
    for answers in [vec![], vec![0, 0], vec![99], vec![u64::MAX]] {
        let wrong = answers.clone();
        let probe = Probe::new(move |_, _, answer| {
            answer.extend(&wrong);
            Ok(())
        });
        let mut slots = Slots { cache: Some(probe), ..Slots::default() };
        assert_eq!(hits(&mut slots, &turns), 0);
        let probe = slots.cache.unwrap();
        assert!(probe.asked > 0 && probe.refused.len() as u64 == probe.asked, "{answers:?}: {:?}", probe.refused);
    }
}
