//! Fairness between tenants by virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI
//! 2024): whoever has been served the least goes first.
//!
//! 1. A counter for each tenant adds up what it was served, in weighted tokens, as the host tells it (`accounts.rs`).
//! 2. In a step the tenant with the smallest counter comes first with its first prompt, is charged for what the budget
//!    grants to that, and so on. So one tenant with many prompts does not take a budget that another has a claim to.
//! 3. A tenant that comes back after it had nothing waiting starts at the smallest counter of those that had: it can
//!    not save up a claim by being away.
//!
//! What a step charges is forgotten after it: the counters themselves go by what was served. On a chain with several
//! micro-batches in flight they are behind by those.
//!
//! A prompt is not shared out in small pieces: whose turn it is has what is left of the budget. The budget is small,
//! and two prompts that are computed half and half are both late. Those that decode are not named: all of them run.

mod accounts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use pointsman_sdk::{BatchPolicy, Cluster, InitError, Plan, Policy, Ready, Served, Step, knobs};

use accounts::Accounts;

/// Most that a token may count as.
const WEIGHT_MAX: u64 = 1000;
/// Room for the largest window.
const READY: usize = 256;

/// The policy.
pub struct Fair {
    /// What a token of a prompt counts as.
    prompt_weight: u64,
    /// What a new token counts as.
    output_weight: u64,
    accounts: Accounts,
    /// Prompts of the window that is being looked at: tenant and index, ascending.
    prompts: Vec<(u32, usize)>,
    /// The tenants of these prompts, the one whose turn it is on top.
    lanes: BinaryHeap<Reverse<Lane>>,
    /// Indices in the order in which they are to run.
    order: Vec<usize>,
}

/// A tenant with prompts in the window. Ordered by counter, and of equals by whose prompt comes first in the usual
/// order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    /// The counter, and what this step has charged.
    service: u64,
    /// Index of the next prompt.
    index: usize,
    tenant: u32,
    /// Where the next prompt stands in [`Fair::prompts`], and where the tenant's last one ends.
    next: usize,
    end: usize,
    /// Whether something of its prompts was left over.
    left_over: bool,
}

impl Fair {
    /// Opens a lane for each tenant in the window.
    fn open_lanes(&mut self, ready: &[Ready]) {
        let Self { accounts, prompts, lanes, .. } = self;
        let waiting = ready.iter().enumerate().filter(|(_, it)| !it.decodes());
        prompts.clear();
        prompts.extend(waiting.map(|(index, it)| (it.tenant, index)));
        prompts.sort_unstable();
        if !prompts.is_empty() {
            accounts.update_level();
        }
        let mut next = 0;
        lanes.clear();
        for group in prompts.chunk_by(|one, other| one.0 == other.0) {
            let (tenant, index) = group[0];
            let (service, end) = (accounts.enter(tenant), next + group.len());
            lanes.push(Reverse(Lane { service, index, tenant, next, end, left_over: false }));
            next = end;
        }
    }

    /// Puts the prompts in order, each time the first one of the tenant with the smallest counter.
    fn put_in_order(&mut self, mut budget: u32, ready: &[Ready]) {
        let Self { prompt_weight, accounts, prompts, lanes, order, .. } = self;
        order.clear();
        while let Some(mut top) = lanes.peek_mut() {
            let lane = &mut top.0;
            order.push(lane.index);
            let pending = ready[lane.index].pending;
            let granted = pending.min(budget);
            budget -= granted;
            lane.service = lane.service.saturating_add(*prompt_weight * u64::from(granted));
            lane.left_over |= granted < pending;
            lane.next += 1;
            match prompts[..lane.end].get(lane.next) {
                Some(&(_, index)) => lane.index = index,
                None => {
                    let Reverse(lane) = PeekMut::pop(top);
                    accounts.leave(lane.tenant, lane.left_over);
                }
            }
        }
    }
}

impl Policy for Fair {
    const NAME: &str = "batch-fair";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// How far tenants are ahead, laid out as `Accounts::save` says.
    const STATE_SCHEMA: &str = "batch-fair/ahead/1";

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let knobs = knobs(config, &["prompt_weight", "output_weight"])?;
        Ok(Self {
            prompt_weight: knobs.number("prompt_weight", 1..=WEIGHT_MAX, 1)?,
            output_weight: knobs.number("output_weight", 1..=WEIGHT_MAX, 2)?,
            accounts: Accounts::default(),
            prompts: Vec::with_capacity(READY),
            lanes: BinaryHeap::with_capacity(READY),
            order: Vec::with_capacity(READY),
        })
    }

    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        if schema == Self::STATE_SCHEMA {
            self.accounts.restore(bytes);
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(self.accounts.save())
    }

    fn dump(&self) -> String {
        self.accounts.dump()
    }
}

impl BatchPolicy for Fair {
    fn on_served(&mut self, served: Served) {
        let prompt = self.prompt_weight * u64::from(served.prompt_tokens);
        let new = self.output_weight * u64::from(served.new_tokens);
        self.accounts.charge(served.tenant, prompt + new);
    }

    fn step(&mut self, ask: &Step, ready: &[Ready], plan: &mut Plan) {
        self.accounts.next_step();
        self.open_lanes(ready);
        self.put_in_order(ask.token_budget, ready);
        // Whoever comes last in the usual order anyway is not named.
        let usual = self.order.windows(2).rev().take_while(|pair| pair[0] < pair[1]).count() + 1;
        let named = self.order.len().saturating_sub(usual);
        self.order[..named].iter().for_each(|&index| plan.run(index));
    }
}

pointsman_sdk::export_policy!(Fair: batch);

#[cfg(test)]
mod tests;
