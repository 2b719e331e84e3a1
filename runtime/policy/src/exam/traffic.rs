//! Made-up traffic through a real engine and its slots, with a made-up clock.
//!
//! Stages are faked by their answers alone: every logit is zero, so a request generates token 0 until its end. For
//! [`super::examine`] and for tests.

use std::collections::BTreeMap;

use pointsman_engine::ids::{Micros, RequestId, TokenId};
use pointsman_engine::output::{Event, Finish, Outbox};
use pointsman_engine::port::{Logits, StepPlan, StepResult};
use pointsman_engine::request::{ModelLimits, RawRequest, Request};
use pointsman_engine::{ChainConfig, ConfigError, Engine, EngineConfig, Prefill, random};

use crate::slo::Sample;
use crate::slot::Slots;

const MODEL: ModelLimits = ModelLimits { context_tokens: 256, vocab: 2 };

/// An engine, its slots, and those who wait for answers.
pub struct Traffic {
    /// The engine.
    pub engine: Engine,
    /// The slots.
    pub slots: Slots,
    /// Requests that were answered to their end.
    pub answered: u64,
    /// Requests that were refused or failed.
    pub failed: u64,
    /// Time to the first token of each request that was answered to its end, in microseconds.
    pub first_tokens: Vec<(RequestId, u64)>,
    /// How much longer than usual a step takes on each chain.
    pub slowness: Vec<f64>,
    now: u64,
    next: u64,
    seed: u64,
    out: Outbox,
    /// Steps at work and when each comes back.
    plans: Vec<(u64, StepPlan)>,
    waiting: BTreeMap<RequestId, (u64, u64, u64)>,
}

impl Traffic {
    /// `chains` chains for eight jobs each.
    ///
    /// # Errors
    /// No or too many chains.
    pub fn new(slots: Slots, chains: usize, seed: u64) -> Result<Self, ConfigError> {
        let engine = Engine::new(&EngineConfig {
            chains: vec![ChainConfig { jobs_max: 8, kv_blocks: 64, stages: 1 }; chains],
            block_tokens: 16,
            model: MODEL,
            seed,
            queue_max: 256,
            prefill: Prefill::default(),
            prefix_cache: true,
        })?;
        Ok(Self {
            engine,
            slots,
            answered: 0,
            failed: 0,
            first_tokens: Vec::new(),
            slowness: vec![1.0; chains],
            now: 0,
            next: 0,
            seed,
            out: Outbox::default(),
            plans: Vec::new(),
            waiting: BTreeMap::new(),
        })
    }

    /// Requests sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn open(&self) -> usize {
        self.waiting.len()
    }

    fn draw(&self, n: u64, below: u64) -> u64 {
        random::bits(self.seed ^ n, self.next) % below
    }

    /// The beginning that all requests of a session have in common, and something of its own.
    fn prompt(&self, session: u64) -> Vec<TokenId> {
        let token = |key: u64| move |at: u64| TokenId::from(random::bits(key, at) % 2 == 1);
        let (common, own) = (random::bits(self.seed, session) % 48, 1 + self.draw(1, 24));
        (0..common).map(token(session)).chain((0..own).map(token(random::bits(self.seed, self.next)))).collect()
    }

    /// Sends a request of random size, tenant and deadline.
    pub fn send(&mut self) {
        let session = self.draw(5, 20);
        let mut raw = RawRequest {
            prompt: self.prompt(session),
            max_new_tokens: Some(1 + self.draw(2, 12) as u32),
            tenant: self.draw(3, 3) as u32,
            class: self.draw(4, 2) as u32,
            session,
            ..RawRequest::default()
        };
        raw.sampling.temperature = 0.0;
        if self.draw(6, 4) == 0 {
            raw.deadline = Micros(self.now + 1_000 + self.draw(7, 100_000));
        }
        self.submit(raw);
    }

    /// Sends this request. One that is refused counts as failed.
    pub fn submit(&mut self, raw: RawRequest) {
        let id = RequestId(self.next);
        self.next += 1;
        let Ok(request) = Request::check(raw, MODEL) else {
            self.failed += 1;
            return;
        };
        self.waiting.insert(id, (self.now, 0, 0));
        if self.engine.submit(Micros(self.now), id, request, &mut self.slots, &mut self.out).is_err() {
            self.waiting.remove(&id);
            self.failed += 1;
        }
        self.take();
    }

    /// Lets the next step come back; without one, time goes to the engine's next deadline.
    pub fn step(&mut self) {
        let Some(at) = (0..self.plans.len()).min_by_key(|at| self.plans[*at].0) else {
            self.now = self.engine.next_deadline().map_or(self.now + 1_000, |at| at.0);
            self.engine.tick(Micros(self.now), &mut self.slots, &mut self.out);
            return self.take();
        };
        let (due, plan) = self.plans.swap_remove(at);
        self.now = self.now.max(due);
        let rows: usize = plan.slices.iter().map(|slice| if slice.logits == Logits::Last { 1 } else { 0 }).sum();
        let logits = Ok(vec![0.0; rows * MODEL.vocab as usize]);
        let result = StepResult { chain: plan.chain, batch: plan.batch, logits };
        self.engine.complete(Micros(self.now), result, &mut self.slots, &mut self.out);
        self.take();
    }

    /// Sends until `requests` have been sent, with at most `open` at once, and waits for all of them.
    pub fn run(&mut self, requests: u64, open: usize) {
        while self.next < requests || !self.waiting.is_empty() {
            if self.next < requests && self.waiting.len() < open {
                self.send();
            } else {
                self.step();
            }
        }
    }

    fn take(&mut self) {
        for plan in self.out.plans.drain(..) {
            // A fixed part, a part for each token, and some noise.
            let tokens: usize = plan.slices.iter().map(|slice| slice.tokens.len()).sum();
            let noise = random::bits(self.seed, self.now) % 100;
            let micros = ((200 + 5 * tokens as u64 + noise) as f64 * self.slowness[plan.chain.0 as usize]) as u64;
            self.plans.push((self.now + micros, plan));
        }
        for (id, event) in self.out.events.drain(..) {
            match event {
                Event::Token { .. } => {
                    if let Some((_, first, tokens)) = self.waiting.get_mut(&id) {
                        *tokens += 1;
                        if *tokens == 1 {
                            *first = self.now;
                        }
                    }
                }
                Event::Done(finish) => {
                    let Some((arrived, first, tokens)) = self.waiting.remove(&id) else {
                        // A second end: what is lost twice is not answered.
                        self.failed += 1;
                        continue;
                    };
                    let well = matches!(finish, Finish::Stop | Finish::Length);
                    *if well { &mut self.answered } else { &mut self.failed } += 1;
                    if well {
                        self.first_tokens.push((id, first - arrived));
                        let tpot_micros = (self.now - first).checked_div(tokens - 1);
                        self.slots.observe(id, Sample { ttft_micros: first - arrived, tpot_micros });
                    }
                }
                Event::Started { .. } | Event::Prompt(_) => {}
            }
        }
    }
}
