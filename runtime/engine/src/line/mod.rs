//! One chain at work: continuous batching over a paged KV store, several micro-batches in flight.
//!
//! A sequence enters with [`Line::start`], which reserves blocks for all the tokens it can ever have, sharing those that
//! hold the beginning of its prompt already ([`kv`]), and takes part in micro-batches that [`Line::plan`] makes ([`batch`]
//! says how) until [`Line::settle`] finds that it has ended. It is in at most one micro-batch at a time. Its blocks are
//! released when it leaves, and it leaves only when no micro-batch that uses them is in flight: one that is cancelled
//! meanwhile stays as a *remnant* until then.

pub(crate) mod batch;

pub(crate) mod kv;

pub(crate) mod pipeline;

pub(crate) mod sequence;

use std::collections::{BTreeMap, VecDeque};
use std::slice::ChunksExact;

use crate::config::{ChainConfig, EngineConfig, Prefill};
use crate::ids::{Micros, RequestId};
use crate::line::kv::{BlockPool, Evict};
use crate::line::pipeline::{Part, Pipeline};
use crate::line::sequence::{Phase, Sequence};
use crate::output::{Finish, Outbox};
use crate::request::Request;
use crate::sample::Scratch;
use crate::window::Served;
use crate::yard::queue::Job;

/// Place of a sequence in its line, for as long as it is there.
pub(crate) type Slot = u32;

/// What a line keeps of one chain.
pub(crate) struct Line {
    kv: BlockPool,
    slots: Vec<Option<Sequence>>,
    free: Vec<Slot>,
    /// Sequences with prompt left to run and not in flight, in order of dispatch.
    prefill: BTreeMap<u64, Slot>,
    /// Sequences that wait to decode; those that have waited longest come first.
    decode: VecDeque<Slot>,
    pipeline: Pipeline,
    settings: Prefill,
    /// What each tenant was served since [`Self::take_served`].
    served: Vec<Served>,
    started_total: u64,
    tokens_total: u64,
}

/// A sequence that has just started.
pub(crate) struct Started {
    pub slot: Slot,
    /// Tokens of its prompt that were looked up in the prefix cache.
    pub asked_tokens: u32,
    /// Those of them that were found.
    pub cached_tokens: u32,
    /// Blocks that were evicted for it.
    pub evicted_blocks: u64,
}

/// A sequence that has just ended.
pub(crate) struct Ended {
    pub id: RequestId,
    pub finish: Finish,
    pub started: Micros,
}

impl Line {
    pub fn new(chain: &ChainConfig, config: &EngineConfig) -> Self {
        Self {
            kv: BlockPool::new(chain.kv_blocks, config.block_tokens, config.prefix_cache),
            slots: (0..chain.jobs_max).map(|_| None).collect(),
            free: (0..chain.jobs_max).rev().collect(),
            prefill: BTreeMap::new(),
            decode: VecDeque::with_capacity(chain.jobs_max as usize),
            pipeline: Pipeline::new(chain.stages),
            settings: config.prefill,
            served: Vec::new(),
            started_total: 0,
            tokens_total: 0,
        }
    }

    /// Sequences that hold blocks: those that run, and remnants.
    pub fn busy(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    pub fn kv(&self) -> &BlockPool {
        &self.kv
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub fn tokens_total(&self) -> u64 {
        self.tokens_total
    }

    pub fn sequences(&self) -> impl Iterator<Item = (Slot, &Sequence)> {
        (0..).zip(&self.slots).filter_map(|(slot, sequence)| Some((slot, sequence.as_ref()?)))
    }

    /// Slots that wait for a micro-batch: those that decode first, each group in the order in which they would go.
    pub fn ready(&self) -> impl Iterator<Item = Slot> {
        self.decode.iter().chain(self.prefill.values()).copied()
    }

    /// Tokens that came back since this was asked last, by tenant.
    pub fn take_served(&mut self) -> impl Iterator<Item = Served> {
        self.served.drain(..)
    }

    fn note_served(&mut self, tenant: u32, part: &Part) {
        let (prompt_tokens, new_tokens) = if part.decodes { (0, part.tokens) } else { (part.tokens, 0) };
        match self.served.iter_mut().find(|served| served.tenant == tenant) {
            Some(served) => {
                served.prompt_tokens = served.prompt_tokens.saturating_add(prompt_tokens);
                served.new_tokens = served.new_tokens.saturating_add(new_tokens);
            }
            None => self.served.push(Served { tenant, prompt_tokens, new_tokens }),
        }
    }

    /// Whether the cache is of use to a request: log-probs of the prompt need the rows of all its tokens.
    fn looks_up(&self, request: &Request) -> bool {
        self.kv.caches() && !request.raw().prompt_logprobs
    }

    /// Tokens from the beginning of its prompt that a request would not have to compute here now.
    pub fn cached_tokens(&self, request: &Request) -> u32 {
        let raw = request.raw();
        if self.looks_up(request) { self.kv.cached_tokens(raw.tenant, &raw.prompt) } else { 0 }
    }

    /// Reserves blocks for all of a job's tokens and lets it run behind what is cached of its prompt. `evict` is asked what
    /// to give up for it. `None` if there is no slot or no room for it.
    pub fn start(&mut self, job: Job, now: Micros, evict: Evict<'_>) -> Option<Started> {
        let &slot = self.free.last()?;
        let (request, evicted_before) = (&job.request, self.kv.evicted_total());
        let (tenant, prompt) = (request.raw().tenant, &request.raw().prompt);
        let asked_tokens = if self.looks_up(request) { request.prompt_tokens() } else { 0 };
        let cached_tokens = self.cached_tokens(request);
        let table = self.kv.reserve(request.reserve_tokens(), tenant, &prompt[..cached_tokens as usize], evict)?;
        self.free.pop();
        self.slots[slot as usize] = Some(Sequence::new(job, table, cached_tokens, self.started_total, now));
        self.prefill.insert(self.started_total, slot);
        self.started_total += 1;
        let evicted_blocks = self.kv.evicted_total() - evicted_before;
        Some(Started { slot, asked_tokens, cached_tokens, evicted_blocks })
    }

    /// Stops a sequence from outside. In flight it leaves a remnant behind that [`Self::settle`] clears.
    pub fn stop(&mut self, slot: Slot) {
        let Some(sequence) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        if sequence.phase == Phase::InFlight {
            sequence.phase = Phase::Remnant;
            return;
        }
        self.prefill.remove(&sequence.order);
        self.decode.retain(|&ready| ready != slot);
        self.leave(slot);
    }

    /// Accounts for a micro-batch that came back with `logits`, rows of `vocab` values, or with the reason why there are
    /// none. Sends events to `out` and returns the sequences that ended, which have left; `None` if no micro-batch of this
    /// number is in flight.
    pub fn settle(
        &mut self,
        batch: u64,
        logits: Result<&[f32], &str>,
        vocab: usize,
        scratch: &mut Scratch,
        out: &mut Outbox,
    ) -> Option<Vec<Ended>> {
        let step = self.pipeline.take(batch)?;
        let mut logits = logits.map_err(str::to_owned);
        if let Ok(values) = logits {
            let (got, rows) = (values.len(), step.rows());
            if Some(got) != rows.checked_mul(vocab) {
                logits = Err(format!("the device returned {got} logits instead of {rows} rows of {vocab}"));
            }
        }
        let mut ended = Vec::new();
        for part in &step.parts {
            self.tokens_total += u64::from(part.tokens);
            if let Some(tenant) = self.slots[part.slot as usize].as_ref().map(Sequence::tenant) {
                self.note_served(tenant, part);
            }
            let rows = match &mut logits {
                Ok(rest) => {
                    let (rows, after) = rest.split_at(part.rows() * vocab);
                    *rest = after;
                    Ok(rows.chunks_exact(vocab))
                }
                Err(why) => Err(why.as_str()),
            };
            ended.extend(self.settle_part(part, rows, scratch, out));
        }
        Some(ended)
    }

    fn settle_part(
        &mut self,
        part: &Part,
        rows: Result<ChunksExact<'_, f32>, &str>,
        scratch: &mut Scratch,
        out: &mut Outbox,
    ) -> Option<Ended> {
        let sequence = self.slots[part.slot as usize].as_mut()?;
        let is_remnant = sequence.phase == Phase::Remnant;
        let finish = match rows {
            Ok(_) if is_remnant => None,
            Ok(rows) => sequence.advance(part.tokens, rows, scratch, out),
            Err(why) => Some(Finish::Failed(why.to_owned())),
        };
        match &finish {
            Some(Finish::Failed(_)) => self.kv.forget(&sequence.table),
            _ => sequence.publish(&mut self.kv),
        }
        if is_remnant {
            self.leave(part.slot);
            return None;
        }
        if let Some(finish) = finish {
            let ended = Ended { id: sequence.id, finish, started: sequence.started };
            self.leave(part.slot);
            return Some(ended);
        }
        sequence.phase = Phase::Ready;
        if sequence.in_prompt() {
            self.prefill.insert(sequence.order, part.slot);
        } else {
            self.decode.push_back(part.slot);
        }
        None
    }

    fn leave(&mut self, slot: Slot) {
        if let Some(sequence) = self.slots[slot as usize].take() {
            self.kv.release(sequence.table);
            self.free.push(slot);
        }
    }
}
