//! One running sequence: its tokens, how many of them are in the KV store, and its way to the end.

use std::slice::ChunksExact;
use std::sync::Arc;

use crate::ids::{Micros, RequestId, TokenId};
use crate::line::kv::{BlockPool, Table};
use crate::output::{Event, Finish, Logprob, Outbox};
use crate::port::{Logits, SeqSlice};
use crate::request::Request;
use crate::sample::{self, Sampler, Scratch};
use crate::window::Ready;
use crate::yard::queue::Job;

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a micro-batch.
    Ready,
    /// In a micro-batch.
    InFlight,
    /// Ended by the caller while in a micro-batch; leaves when that comes back.
    Remnant,
}

/// A dispatched request. Invariant: `computed <= prompt + output`, and the table covers every token it can ever have.
/// Blocks that hold tokens from `computed` on are its own, since it may write them.
pub(crate) struct Sequence {
    pub id: RequestId,
    /// Number of its dispatch on this chain.
    pub order: u64,
    pub started: Micros,
    /// Micro-batches in a row in which it was ready and passed over.
    pub passed: u32,
    pub phase: Phase,
    pub table: Table,
    arrived: Micros,
    request: Request,
    output: Vec<TokenId>,
    /// Tokens whose keys and values are in the store, from the first on.
    computed: u32,
    sampler: Sampler,
    /// Collected while the prompt runs, if asked for.
    prompt_logprobs: Vec<Option<Logprob>>,
}

impl Sequence {
    /// `cached` tokens of the prompt, not all of them, are in the table's blocks already.
    pub fn new(job: Job, table: Table, cached: u32, order: u64, now: Micros) -> Self {
        let sampler = Sampler::new(&job.request);
        Self {
            id: job.id,
            order,
            started: now,
            passed: 0,
            arrived: job.arrived,
            phase: Phase::Ready,
            table,
            request: job.request,
            output: Vec::new(),
            computed: cached,
            sampler,
            prompt_logprobs: Vec::new(),
        }
    }

    pub fn tenant(&self) -> u32 {
        self.request.raw().tenant
    }

    /// What a policy may know of it.
    pub fn facts(&self, now: Micros) -> Ready {
        let raw = self.request.raw();
        Ready {
            id: self.id,
            tenant: raw.tenant,
            class: raw.class,
            prompt: self.request.prompt_tokens(),
            reserve: self.request.reserve_tokens(),
            computed: self.computed,
            pending: self.pending(),
            waited: now.since(self.arrived),
            deadline: raw.deadline,
            generated: self.output.len() as u32,
            passed: self.passed,
        }
    }

    /// Tokens whose keys and values are in the store.
    pub fn computed(&self) -> u32 {
        self.computed
    }

    /// Whether part of the prompt is still to be run.
    pub fn in_prompt(&self) -> bool {
        self.computed < self.request.prompt_tokens()
    }

    pub fn scores_prompt(&self) -> bool {
        self.request.raw().prompt_logprobs
    }

    /// Tokens that are known but not in the KV store yet; at least one until it ends.
    pub fn pending(&self) -> u32 {
        self.request.prompt_tokens() + self.output.len() as u32 - self.computed
    }

    /// The next `tokens` pending ones, as a part of a plan.
    pub fn slice(&self, tokens: u32, logits: Logits) -> SeqSlice {
        let known = self.request.raw().prompt.iter().chain(&self.output);
        let tokens = known.skip(self.computed as usize).take(tokens as usize).copied().collect();
        SeqSlice { request: self.id, start: self.computed, tokens, blocks: Arc::clone(self.table.blocks()), logits }
    }

    /// Lets others find the blocks that are full by now.
    pub fn publish(&mut self, kv: &mut BlockPool) {
        let known = self.request.raw().prompt.iter().chain(&self.output);
        kv.publish(&mut self.table, self.computed, known.copied());
    }

    /// Takes in that `tokens` more are in the KV store, with the rows of logits that were asked for. Draws the next token
    /// if nothing is pending. Returns how the sequence ends, if it does.
    pub fn advance(
        &mut self,
        tokens: u32,
        rows: ChunksExact<'_, f32>,
        scratch: &mut Scratch,
        out: &mut Outbox,
    ) -> Option<Finish> {
        let start = self.computed as usize;
        self.computed += tokens;
        let last = rows.clone().next_back();
        let drawn = self.score_prompt(start, rows, scratch).and_then(|()| {
            let Some(row) = last.filter(|_| self.pending() == 0) else { return Ok(None) };
            self.sampler.next(&self.request, row, scratch).map(Some)
        });
        let drawn = match drawn {
            Ok(None) => return None,
            Ok(Some(drawn)) => drawn,
            Err(error) => return Some(Finish::Failed(error.to_string())),
        };
        if !self.prompt_logprobs.is_empty() {
            out.events.push((self.id, Event::Prompt(std::mem::take(&mut self.prompt_logprobs))));
        }
        if self.request.raw().stop_tokens.contains(&drawn.id) {
            return Some(Finish::Stop);
        }
        self.output.push(drawn.id);
        out.events.push((self.id, Event::Token { id: drawn.id, logprob: drawn.logprob }));
        (self.output.len() as u32 == self.request.max_new_tokens()).then_some(Finish::Length)
    }

    /// Log-probs of the prompt's tokens that the rows of positions `start..` predict, if they were asked for.
    fn score_prompt(
        &mut self,
        start: usize,
        rows: ChunksExact<'_, f32>,
        scratch: &mut Scratch,
    ) -> Result<(), sample::NoFiniteLogit> {
        let raw = self.request.raw();
        if !raw.prompt_logprobs || start >= raw.prompt.len() {
            return Ok(());
        }
        if start == 0 {
            self.prompt_logprobs.reserve_exact(raw.prompt.len());
            self.prompt_logprobs.push(None);
        }
        for (row, &token) in rows.zip(&raw.prompt[start + 1..]) {
            let logprob = sample::logprob(row, token, raw.logprobs.unwrap_or(0), scratch)?;
            self.prompt_logprobs.push(Some(logprob));
        }
        Ok(())
    }
}
