//! Random worlds: arrivals, cancels, results in any order, failing devices, closing chains and hostile policies.
//!
//! After every input all invariants are checked; at the end every accepted request has ended exactly once, no block is in
//! use, and every stream is what the same request produces alone (or a beginning of it, if it was cut short). Prompts begin
//! alike, so that the prefix cache has work; most worlds have one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{CONTEXT, MODEL, VOCAB, World, caching, config, undisturbed};
use pointsman_engine::EngineConfig;
use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::output::{Event, Finish};
use pointsman_engine::port::{Overlap, Pick, Policies, Pull, RoutePolicy, StepPlan, StepResult, Waiting};
use pointsman_engine::random;
use pointsman_engine::request::{RawRequest, Request, Sampling};
use pointsman_engine::snapshot::{RouteEvent, Snapshot};

/// Random numbers of one run.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    fn word(&mut self) -> u64 {
        self.thrown += 1;
        random::bits(self.seed, self.thrown)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// How a policy behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    RandomWords,
    AlwaysInvalid,
    AlwaysQueue,
    DeferForever,
    FailsNow,
    FailsOften,
    Rejects,
}

struct Hostile {
    mood: Mood,
    dice: Dice,
    has_view: bool,
}

impl Hostile {
    fn new(mood: Mood, seed: u64) -> Self {
        Self { mood, dice: Dice::new(seed), has_view: false }
    }

    fn stumble(&mut self) -> Result<(), Fault> {
        if self.mood == Mood::FailsNow || (self.mood == Mood::FailsOften && self.dice.one_in(3)) {
            self.has_view = self.dice.one_in(2);
            return Err(Fault::new(FaultClass::ALL[self.dice.below(9) as usize], "stumbled"));
        }
        Ok(())
    }
}

impl RoutePolicy for Hostile {
    fn wants_snapshot(&self) -> bool {
        !self.has_view
    }

    fn init(&mut self, _: &Snapshot) -> Result<(), Fault> {
        self.has_view = true;
        self.stumble()
    }

    fn apply(&mut self, _: u64, _: &[RouteEvent]) -> Result<(), Fault> {
        self.stumble()
    }

    fn pick(&mut self, ask: &Pick, _overlap: &[Overlap]) -> Result<RouteDecision, Fault> {
        self.stumble()?;
        let word = self.dice.word();
        match self.mood {
            Mood::RandomWords if word.is_multiple_of(2) => RouteDecision::decode(ask.rnd),
            Mood::RandomWords => RouteDecision::decode((word >> 60 & 3) << 60 | word & 3),
            Mood::AlwaysInvalid => Ok(RouteDecision::Dispatch(ChainId(u32::MAX))),
            Mood::DeferForever => Ok(RouteDecision::Defer(Micros(word & 0xffff_ffff))),
            Mood::Rejects if word.is_multiple_of(3) => Ok(RouteDecision::Reject(7)),
            Mood::Rejects if word % 3 == 1 => Ok(RouteDecision::Defer(Micros(5))),
            _ => Ok(RouteDecision::Queue),
        }
    }

    fn pull(&mut self, _: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault> {
        assert!(!waiting.is_empty() && waiting.len() <= 64);
        self.stumble()?;
        match self.mood {
            Mood::RandomWords => Ok(Some(self.dice.below(12) as u32)),
            Mood::AlwaysInvalid => Ok(Some(u32::MAX)),
            Mood::Rejects => Ok(Some(0)),
            _ => Ok(None),
        }
    }

    fn refused(&mut self, why: &Fault) {
        assert_eq!(why.class, FaultClass::Invalid);
    }
}

/// A prompt that begins like one of three texts.
fn random_prompt(dice: &mut Dice) -> Vec<u32> {
    let (text, tokens) = (dice.below(3), 1 + dice.below(40));
    let alike = dice.below(tokens + 1);
    let token = |at| if at < alike { random::bits(text, at) } else { dice.word() };
    (0..tokens).map(token).map(|word| (word % u64::from(VOCAB)) as u32).collect()
}

/// Any request that the model's limits allow.
fn random_request(dice: &mut Dice) -> Request {
    let prompt = random_prompt(dice);
    let new = 1 + dice.below(24) as u32;
    let some = |dice: &mut Dice, values: &[f32]| values[dice.below(values.len() as u64) as usize];
    assert!(prompt.len() as u32 + new <= CONTEXT);
    let raw = RawRequest {
        prompt,
        tenant: dice.below(2) as u32,
        max_new_tokens: if dice.one_in(8) { None } else { Some(new) },
        min_new_tokens: dice.below(u64::from(new.min(4))) as u32,
        stop_tokens: (0..dice.below(4)).map(|_| dice.below(u64::from(VOCAB)) as u32).collect(),
        sampling: Sampling {
            temperature: some(dice, &[0.0, 0.0, 0.7, 1.3]),
            top_p: some(dice, &[1.0, 0.9]),
            top_k: some(dice, &[0.0, 5.0]) as u32,
            min_p: some(dice, &[0.0, 0.05]),
            presence_penalty: some(dice, &[0.0, 0.0, 0.5]),
            frequency_penalty: some(dice, &[0.0, 0.0, 0.3]),
            repetition_penalty: some(dice, &[1.0, 1.0, 1.2]),
            logit_bias: vec![(3, 1.5); dice.below(2) as usize],
            seed: dice.word(),
        },
        logprobs: if dice.one_in(3) { Some(dice.below(5) as u32) } else { None },
        prompt_logprobs: dice.one_in(4),
        ..RawRequest::default()
    };
    Request::check(raw, MODEL).unwrap()
}

/// What one run did, for comparison with another.
#[derive(PartialEq, Debug)]
struct Outcome {
    plans: Vec<StepPlan>,
    events: BTreeMap<RequestId, Vec<Event>>,
    refusals: Vec<String>,
    /// Tokens that were found in the prefix cache.
    hits: u64,
    evicted: u64,
}

const CHAINS: [&[(u32, u32, u32)]; 4] =
    [&[(4, 40, 1)], &[(3, 48, 2), (2, 30, 1)], &[(8, 60, 3)], &[(1, 24, 1), (6, 30, 2), (2, 80, 4)]];

/// One random world with a prefix cache. `faults` lets devices fail and results come in any order.
fn run(seed: u64, policy: &mut dyn Policies, faults: bool) -> Outcome {
    run_in(&caching(CHAINS[seed as usize % CHAINS.len()]), seed, policy, faults)
}

fn run_in(config: &EngineConfig, seed: u64, policy: &mut dyn Policies, faults: bool) -> Outcome {
    let chains = &config.chains;
    let mut world = World::new(config);
    let mut dice = Dice::new(seed);
    let (mut accepted, mut refusals) = (BTreeMap::new(), Vec::new());
    for id in 0..400 {
        world.now += dice.below(3000);
        let chain = dice.below(chains.len() as u64) as usize;
        match dice.below(if faults { 14 } else { 10 }) {
            0..=2 => {
                let request = random_request(&mut dice);
                match world.submit(id, request.clone(), policy) {
                    Ok(()) => drop(accepted.insert(id, request)),
                    Err(reject) => refusals.push(reject.to_string()),
                }
            }
            3..=7 => drop(world.step(chain, policy)),
            8 => world.cancel(dice.below(id + 1), policy),
            9 => world.tick(policy),
            10 => world.set_open(chain, dice.one_in(2), policy),
            11 => world.now += 100_000,
            12 => {
                let batch = dice.below(1 << 40) + (1 << 20);
                let chain = ChainId(dice.below(5) as u32);
                world.complete(StepResult { chain, batch, logits: Ok(Vec::new()) }, policy);
            }
            _ => {
                let number = dice.below(world.in_flight(chain).max(1) as u64) as usize;
                let Some(mut result) = world.take(chain, number) else { continue };
                match dice.below(6) {
                    0 => result.logits = Err("the device is gone".to_owned()),
                    1 => result.logits.as_mut().unwrap().push(0.0),
                    2 => result.logits.as_mut().unwrap().fill(f32::NAN),
                    _ => {}
                }
                world.complete(result, policy);
            }
        }
    }
    for chain in 0..chains.len() {
        world.set_open(chain, true, policy);
    }
    world.engine.drain();
    world.finish(policy);
    check_end(&world, &accepted);
    let stats = world.engine.stats();
    let (hits, evicted) = (stats.prefix_hits_tokens_total, stats.prefix_evicted_blocks_total);
    Outcome { plans: world.plans, events: world.events, refusals, hits, evicted }
}

fn check_end(world: &World, accepted: &BTreeMap<u64, Request>) {
    let stats = world.engine.stats();
    assert!(world.engine.is_idle() && stats.running == 0 && stats.waiting == 0);
    assert!(stats.chains.iter().all(|chain| chain.busy == 0 && chain.kv_blocks_used == 0));
    assert_eq!(stats.accepted_total, accepted.len() as u64);
    assert!(world.events.keys().all(|id| accepted.contains_key(&id.0)), "a refused request got an event");
    for (id, request) in accepted {
        let events = &world.events[&RequestId(*id)];
        let expected = undisturbed(request);
        match events.last() {
            Some(Event::Done(Finish::Stop | Finish::Length)) => assert_eq!(*events, expected, "request {id}"),
            Some(Event::Done(_)) => assert!(expected.starts_with(&events[..events.len() - 1]), "request {id}"),
            other => panic!("request {id} ended with {other:?}"),
        }
    }
}

#[test]
fn streams_are_undisturbed_under_the_builtin_with_and_without_a_prefix_cache() {
    let (mut compared, mut hits, mut evicted) = (0, 0, 0);
    for seed in 0..60 {
        let cached = run(seed, &mut Builtin::default(), false);
        let plain = config(CHAINS[seed as usize % CHAINS.len()]);
        let plain = run_in(&plain, seed, &mut Builtin::default(), false);
        assert_eq!((plain.hits, plain.evicted), (0, 0));
        (hits, evicted) = (hits + cached.hits, evicted + cached.evicted);
        let whole = |events: &[Event]| matches!(events.last(), Some(Event::Done(Finish::Stop | Finish::Length)));
        for (id, events) in cached.events.iter().filter(|(_, events)| whole(events)) {
            if let Some(same) = plain.events.get(id).filter(|events| whole(events)) {
                assert_eq!(events, same, "seed {seed}, request {id:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 1500 && hits > 2000 && evicted > 1000, "{compared} {hits} {evicted}");
}

#[test]
fn nothing_is_lost_when_devices_fail_and_results_come_in_any_order() {
    for seed in 0..100 {
        run(1000 + seed, &mut Builtin::default(), true);
    }
}

#[test]
fn hostile_policies_only_choose_badly() {
    use Mood::{AlwaysInvalid, AlwaysQueue, DeferForever, FailsNow, FailsOften, RandomWords, Rejects};
    for mood in [RandomWords, AlwaysInvalid, AlwaysQueue, DeferForever, FailsNow, FailsOften, Rejects] {
        for seed in 0..24 {
            run(2000 + seed, &mut Hostile::new(mood, seed), seed % 2 == 0);
        }
    }
}

#[test]
fn same_inputs_give_the_same_outputs() {
    for seed in 0..12 {
        let run = || run(3000 + seed, &mut Hostile::new(Mood::RandomWords, seed), true);
        assert_eq!(run(), run());
    }
}

/// The builtin behind the interface of a policy sees the same and decides the same as the builtin that stands in for a
/// policy that always fails.
#[test]
fn builtin_as_a_policy_decides_like_the_builtin_as_a_stand_in() {
    for seed in 0..40 {
        let native = run(4000 + seed, &mut Builtin::default(), true);
        let stand_in = run(4000 + seed, &mut Hostile::new(Mood::FailsNow, seed), true);
        assert_eq!(native, stand_in, "seed {seed}");
    }
}
