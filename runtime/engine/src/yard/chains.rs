//! The chains: what each can hold, what it runs, whether it takes more.
//!
//! Every change goes through [`Chains::change`], which notes what must follow, so that the cost of a turn does not grow with
//! the number of chains.

use std::collections::VecDeque;

use crate::config::{ChainConfig, EngineConfig};
use crate::ids::{ChainId, Micros};
use crate::line::Line;
use crate::snapshot::ChainView;
use crate::stats::ChainStats;

/// One chain and the work on it.
pub(crate) struct Chain {
    pub id: ChainId,
    /// Sequences that may run at once.
    pub jobs_max: u32,
    /// False while it drains.
    pub open: bool,
    /// Smoothed time of a whole job, 0 until one has finished.
    pub service: Micros,
    pub dispatched_total: u64,
    pub line: Line,
}

impl Chain {
    fn new(id: ChainId, chain: &ChainConfig, config: &EngineConfig) -> Self {
        let line = Line::new(chain, config);
        Self { id, jobs_max: chain.jobs_max, open: true, service: Micros(0), dispatched_total: 0, line }
    }

    /// Whether `reserve` tokens can be dispatched to it now.
    pub fn takes(&self, reserve: u32) -> bool {
        self.open && self.line.busy() < self.jobs_max && self.line.kv().has_room(reserve)
    }

    /// What a policy sees of it.
    pub fn view(&self) -> ChainView {
        ChainView {
            id: self.id,
            capacity: self.jobs_max,
            busy: self.line.busy(),
            free_tokens: self.line.kv().free_tokens(),
            open: self.open,
            service: self.service,
        }
    }

    pub fn stats(&self) -> ChainStats {
        let kv = self.line.kv();
        ChainStats {
            busy: self.line.busy(),
            capacity: self.jobs_max,
            kv_blocks_used: kv.used_blocks(),
            kv_blocks_idle: kv.idle_blocks(),
            kv_blocks_total: kv.total_blocks(),
            steps_total: self.line.pipeline().returned_total(),
            tokens_total: self.line.tokens_total(),
            dispatched_total: self.dispatched_total,
        }
    }

    /// Folds the time of a finished job into the smoothed one, with a weight of 1/8.
    pub fn note_service(&mut self, job: Micros) {
        let (old, new) = (u128::from(self.service.0), u128::from(job.0.max(1)));
        let smoothed = if old == 0 { new } else { (old * 7 + new).div_ceil(8) };
        self.service = Micros(u64::try_from(smoothed).unwrap_or(u64::MAX));
    }
}

/// All chains, by id.
pub(crate) struct Chains {
    all: Vec<Chain>,
    untold: Marks,
    unplanned: Marks,
}

impl Chains {
    /// Idle and open chains. The configuration has been checked.
    pub fn new(config: &EngineConfig) -> Self {
        let chain = |(id, chain): (u32, &_)| Chain::new(ChainId(id), chain, config);
        let all: Vec<Chain> = (0..).zip(&config.chains).map(chain).collect();
        Self { untold: Marks::new(all.len()), unplanned: Marks::new(all.len()), all }
    }

    pub fn get(&self, id: ChainId) -> Option<&Chain> {
        self.all.get(id.0 as usize)
    }

    /// The chain, to be changed. Afterwards it may have work to plan, and its view must be told.
    pub fn change(&mut self, id: ChainId) -> Option<&mut Chain> {
        let chain = self.all.get_mut(id.0 as usize)?;
        self.untold.set(id);
        self.unplanned.set(id);
        Some(chain)
    }

    /// The next chain that has changed since the policy was told of it.
    pub fn next_untold(&mut self) -> Option<&Chain> {
        self.untold.take().map(|id| &self.all[id.0 as usize])
    }

    /// The next chain that has changed since its work was planned.
    pub fn next_unplanned(&mut self) -> Option<&mut Chain> {
        self.unplanned.take().map(|id| &mut self.all[id.0 as usize])
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Chain> {
        self.all.iter()
    }

    pub fn views(&self) -> impl Iterator<Item = ChainView> {
        self.all.iter().map(Chain::view)
    }

    /// Tokens that the largest chain holds when idle.
    pub fn largest_tokens(&self) -> u32 {
        self.all.iter().map(|chain| chain.line.kv().total_tokens()).max().unwrap_or(0)
    }
}

/// Chains to be looked at, each once, in the order in which they were marked.
struct Marks {
    ids: VecDeque<ChainId>,
    is_set: Vec<bool>,
}

impl Marks {
    fn new(chains: usize) -> Self {
        Self { ids: VecDeque::with_capacity(chains), is_set: vec![false; chains] }
    }

    fn set(&mut self, id: ChainId) {
        if !std::mem::replace(&mut self.is_set[id.0 as usize], true) {
            self.ids.push_back(id);
        }
    }

    fn take(&mut self) -> Option<ChainId> {
        let id = self.ids.pop_front()?;
        self.is_set[id.0 as usize] = false;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Prefill;
    use crate::request::ModelLimits;

    #[test]
    fn service_time_is_smoothed_by_an_eighth() {
        let config = EngineConfig {
            chains: vec![ChainConfig { jobs_max: 1, kv_blocks: 1, stages: 1 }],
            block_tokens: 16,
            model: ModelLimits { context_tokens: 16, vocab: 8 },
            seed: 0,
            queue_max: 0,
            prefill: Prefill::default(),
            prefix_cache: false,
        };
        let mut chain = Chain::new(ChainId(0), &config.chains[0], &config);
        let mut note = |job| {
            chain.note_service(Micros(job));
            chain.service.0
        };
        assert_eq!([note(0), note(800), note(800), note(u64::MAX)], [1, 101, 189, (1 << 61) + 166]);
    }
}
