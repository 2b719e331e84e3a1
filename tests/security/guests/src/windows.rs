//! Hostile guests for the slots that are asked with a window: one component for both, honest except from its fourth call on.

use std::marker::PhantomData;

use pointsman_sdk::{BatchPolicy, CachePolicy, Cluster, Evict, Idle, InitError, Plan, Policy, Ready, Step};

/// A guest that is honest until it is asked for the fourth time.
pub trait Hostile {
    /// The name of the guest, which is that of its file.
    const NAME: &'static str;

    /// What it makes of a micro-batch.
    fn step(ready: &[Ready], plan: &mut Plan);

    /// What it makes of a shortage.
    fn victims(idle: &[Idle], victims: &mut Vec<u32>);
}

/// A hostile guest as a policy.
pub struct Guest<H> {
    calls: u32,
    hostile: PhantomData<H>,
}

impl<H> Guest<H> {
    fn is_due(&mut self) -> bool {
        self.calls += 1;
        self.calls >= 4
    }
}

impl<H: Hostile> Policy for Guest<H> {
    const NAME: &'static str = H::NAME;
    const VERSION: &'static str = "0.1.0";

    fn init(_config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        Ok(Self { calls: 0, hostile: PhantomData })
    }
}

impl<H: Hostile> BatchPolicy for Guest<H> {
    fn step(&mut self, _ask: &Step, ready: &[Ready], plan: &mut Plan) {
        if self.is_due() {
            H::step(ready, plan);
        }
    }
}

impl<H: Hostile> CachePolicy for Guest<H> {
    fn victims(&mut self, ask: &Evict, idle: &[Idle], victims: &mut Vec<u32>) {
        if self.is_due() {
            H::victims(idle, victims);
        } else {
            victims.extend((0..idle.len() as u32).take(ask.need_blocks as usize));
        }
    }
}
