//! What is in flight on one chain: at most as many micro-batches as it has stages, so that every stage can be at work and
//! no stage's mailbox grows.

use std::collections::VecDeque;

use crate::line::Slot;
use crate::port::Logits;

/// One sequence's part of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub slot: Slot,
    pub tokens: u32,
    pub logits: Logits,
    /// Whether it decodes, as opposed to running a piece of the prompt.
    pub decodes: bool,
}

impl Part {
    /// Rows of logits that come back for it.
    pub fn rows(&self) -> usize {
        match self.logits {
            Logits::None => 0,
            Logits::Last => 1,
            Logits::All => self.tokens as usize,
        }
    }
}

/// One micro-batch in flight.
pub(crate) struct Step {
    pub batch: u64,
    /// In the order of the plan's slices, and so of the logits.
    pub parts: Vec<Part>,
}

impl Step {
    /// Rows of logits that come back.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(Part::rows).sum()
    }
}

/// The micro-batches in flight, oldest first.
pub(crate) struct Pipeline {
    steps: VecDeque<Step>,
    stages: usize,
    next_batch: u64,
    returned_total: u64,
}

impl Pipeline {
    pub fn new(stages: u32) -> Self {
        Self {
            steps: VecDeque::with_capacity(stages as usize),
            stages: stages as usize,
            next_batch: 0,
            returned_total: 0,
        }
    }

    pub fn stages(&self) -> usize {
        self.stages
    }

    pub fn has_room(&self) -> bool {
        self.steps.len() < self.stages
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn returned_total(&self) -> u64 {
        self.returned_total
    }

    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    /// Sends a micro-batch off and returns its number.
    pub fn start(&mut self, parts: Vec<Part>) -> u64 {
        let batch = self.next_batch;
        self.next_batch += 1;
        self.steps.push_back(Step { batch, parts });
        batch
    }

    /// Takes a micro-batch back; `None` if this number is not in flight. Stages keep the order, but nothing depends on it.
    pub fn take(&mut self, batch: u64) -> Option<Step> {
        let index = self.steps.iter().position(|step| step.batch == batch)?;
        self.returned_total += 1;
        self.steps.remove(index)
    }
}
