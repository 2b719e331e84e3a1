//! A world for an engine to run in: stages that compute a function of all tokens so far, through the paged store, so that
//! a lost, reordered or overwritten token changes what comes out.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::collections::{BTreeMap, VecDeque};

use pointsman_engine::ids::{ChainId, Micros, RequestId, TokenId};
use pointsman_engine::output::{Event, Finish, Outbox};
use pointsman_engine::port::{Logits, Policies, StepPlan, StepResult};
use pointsman_engine::request::{ModelLimits, RawRequest, Reject, Request};
use pointsman_engine::sample::{self, Sampler, Scratch};
use pointsman_engine::{ChainConfig, Engine, EngineConfig, Prefill, invariant, random};

pub const VOCAB: u32 = 48;
pub const CONTEXT: u32 = 96;
pub const MODEL: ModelLimits = ModelLimits { context_tokens: CONTEXT, vocab: VOCAB };
pub const BLOCK_TOKENS: u32 = 4;

/// Chains of (jobs_max, kv_blocks, stages), without a prefix cache.
pub fn config(chains: &[(u32, u32, u32)]) -> EngineConfig {
    let chain = |&(jobs_max, kv_blocks, stages)| ChainConfig { jobs_max, kv_blocks, stages };
    EngineConfig {
        chains: chains.iter().map(chain).collect(),
        block_tokens: BLOCK_TOKENS,
        model: MODEL,
        seed: 1,
        queue_max: 8,
        prefill: Prefill { alone_tokens: 16, beside_decode_tokens: 6, scored_tokens: 3 },
        prefix_cache: false,
    }
}

/// The same with a prefix cache.
pub fn caching(chains: &[(u32, u32, u32)]) -> EngineConfig {
    EngineConfig { prefix_cache: true, ..config(chains) }
}

/// A greedy request for `new` tokens after a prompt of `prompt` tokens that nothing stops.
pub fn request(prompt: u32, new: u32) -> Request {
    let mut raw = RawRequest { prompt: (0..prompt).map(|i| i % VOCAB).collect(), ..RawRequest::default() };
    raw.max_new_tokens = Some(new);
    raw.sampling.temperature = 0.0;
    Request::check(raw, MODEL).unwrap()
}

/// The model: one row of logits from all tokens so far.
pub fn logits(tokens: impl Iterator<Item = TokenId>) -> Vec<f32> {
    let key = tokens.fold(17, |key, token| random::bits(key, u64::from(token)));
    (0..u64::from(VOCAB)).map(|i| (random::unit(key, i) * 8.0 - 4.0) as f32).collect()
}

/// What a request produces when nothing is around it, once it has started.
pub fn undisturbed(request: &Request) -> Vec<Event> {
    let (raw, mut scratch) = (request.raw(), Scratch::default());
    let mut events = Vec::new();
    if raw.prompt_logprobs {
        let scored = (1..raw.prompt.len()).map(|i| {
            let row = logits(raw.prompt[..i].iter().copied());
            Some(sample::logprob(&row, raw.prompt[i], raw.logprobs.unwrap_or(0), &mut scratch).unwrap())
        });
        events.push(Event::Prompt(std::iter::once(None).chain(scored).collect()));
    }
    let mut tokens = raw.prompt.clone();
    let mut sampler = Sampler::new(request);
    for _ in 0..request.max_new_tokens() {
        let drawn = sampler.next(request, &logits(tokens.iter().copied()), &mut scratch).unwrap();
        if raw.stop_tokens.contains(&drawn.id) {
            events.push(Event::Done(Finish::Stop));
            return events;
        }
        tokens.push(drawn.id);
        events.push(Event::Token { id: drawn.id, logprob: drawn.logprob });
    }
    events.push(Event::Done(Finish::Length));
    events
}

/// A chain's paged store, and the results that are on their way back.
struct FakeChain {
    store: Vec<TokenId>,
    results: VecDeque<StepResult>,
}

impl FakeChain {
    fn run(&mut self, plan: StepPlan) {
        let mut rows = Vec::new();
        for slice in &plan.slices {
            let place =
                |p: u32| (slice.blocks[(p / BLOCK_TOKENS) as usize].0 * BLOCK_TOKENS + p % BLOCK_TOKENS) as usize;
            let end = slice.start + slice.tokens.len() as u32;
            for (position, &token) in (slice.start..).zip(&slice.tokens) {
                self.store[place(position)] = token;
            }
            let first = match slice.logits {
                Logits::None => end,
                Logits::Last => end - 1,
                Logits::All => slice.start,
            };
            for position in first..end {
                rows.extend(logits((0..=position).map(|p| self.store[place(p)])));
            }
        }
        self.results.push_back(StepResult { chain: plan.chain, batch: plan.batch, logits: Ok(rows) });
    }
}

/// An engine, its stages, and all that it said.
pub struct World {
    pub engine: Engine,
    pub now: u64,
    pub plans: Vec<StepPlan>,
    /// Cached tokens of the prompts that have been started.
    pub started: BTreeMap<RequestId, u32>,
    /// All events but those.
    pub events: BTreeMap<RequestId, Vec<Event>>,
    pub out: Outbox,
    chains: Vec<FakeChain>,
}

impl World {
    pub fn new(config: &EngineConfig) -> Self {
        let chain = |chain: &ChainConfig| FakeChain {
            store: vec![u32::MAX; (chain.kv_blocks * config.block_tokens) as usize],
            results: VecDeque::new(),
        };
        Self {
            engine: Engine::new(config).unwrap(),
            now: 0,
            plans: Vec::new(),
            started: BTreeMap::new(),
            events: BTreeMap::new(),
            out: Outbox::default(),
            chains: config.chains.iter().map(chain).collect(),
        }
    }

    pub fn submit(&mut self, id: u64, request: Request, policy: &mut dyn Policies) -> Result<(), Reject> {
        let outcome = self.engine.submit(Micros(self.now), RequestId(id), request, policy, &mut self.out);
        self.carry_out();
        outcome
    }

    pub fn cancel(&mut self, id: u64, policy: &mut dyn Policies) {
        self.engine.cancel(Micros(self.now), RequestId(id), policy, &mut self.out);
        self.carry_out();
    }

    pub fn tick(&mut self, policy: &mut dyn Policies) {
        self.engine.tick(Micros(self.now), policy, &mut self.out);
        self.carry_out();
    }

    pub fn set_open(&mut self, chain: usize, open: bool, policy: &mut dyn Policies) {
        assert!(self.engine.set_open(Micros(self.now), ChainId(chain as u32), open, policy, &mut self.out));
        self.carry_out();
    }

    pub fn complete(&mut self, result: StepResult, policy: &mut dyn Policies) {
        self.engine.complete(Micros(self.now), result, policy, &mut self.out);
        self.carry_out();
    }

    /// Micro-batches in flight on a chain.
    pub fn in_flight(&self, chain: usize) -> usize {
        self.chains[chain].results.len()
    }

    /// Takes a result on its way back, the oldest being number 0.
    pub fn take(&mut self, chain: usize, number: usize) -> Option<StepResult> {
        self.chains[chain].results.remove(number)
    }

    /// Lets the oldest micro-batch of a chain come back. False if there is none.
    pub fn step(&mut self, chain: usize, policy: &mut dyn Policies) -> bool {
        let Some(result) = self.take(chain, 0) else { return false };
        self.complete(result, policy);
        true
    }

    /// Runs until nothing is live, letting time pass when nothing else happens.
    pub fn finish(&mut self, policy: &mut dyn Policies) {
        for _ in 0..100_000 {
            let mut moved = false;
            for chain in 0..self.chains.len() {
                self.now += 10;
                moved |= self.step(chain, policy);
            }
            if self.engine.is_idle() {
                return;
            }
            if !moved {
                let at =
                    self.engine.next_deadline().expect("a request waits, but no time is given to look at it again");
                self.now = self.now.max(at.0);
                self.tick(policy);
            }
        }
        panic!("the engine does not come to rest: {:?}", self.engine.stats());
    }

    pub fn done(&self, id: u64) -> Option<&Finish> {
        match self.events.get(&RequestId(id))?.last()? {
            Event::Done(finish) => Some(finish),
            _ => None,
        }
    }

    /// Runs plans, collects events, and checks every invariant.
    fn carry_out(&mut self) {
        if let Err(violation) = invariant::check(&self.engine) {
            panic!("{violation}");
        }
        for (id, event) in std::mem::take(&mut self.out.events) {
            let events = self.events.entry(id).or_default();
            assert!(!matches!(events.last(), Some(Event::Done(_))), "{id:?} got {event:?} after its end");
            if let Event::Started { cached_tokens } = event {
                assert!(self.started.insert(id, cached_tokens).is_none(), "{id:?} was started twice");
                assert!(events.is_empty(), "{id:?} was started after {events:?}");
                continue;
            }
            assert!(matches!(event, Event::Done(_)) || self.started.contains_key(&id), "{event:?} before the start");
            events.push(event);
        }
        for plan in std::mem::take(&mut self.out.plans) {
            assert!(!plan.slices.is_empty() && plan.slices.iter().all(|slice| !slice.tokens.is_empty()));
            self.plans.push(plan.clone());
            self.chains[plan.chain.0 as usize].run(plan);
        }
    }
}
