//! The exports of the `batch` slot.

use super::{Export, with_driver};
use crate::batch::{BatchPolicy, Step};
use crate::bindings::full_policy::exports::pointsman::policy::batch;
use crate::cluster::ChainId;

impl<E: Export<Policy: BatchPolicy>> batch::Guest for E {
    fn apply(seq: u64, words: Vec<u64>) {
        with_driver::<E, _>(|driver| driver.apply_served(seq, &words));
    }

    fn step(_seq: u64, now: u64, rnd: u64, chain: u32, token_budget: u32, in_flight: u32, words: Vec<u64>) -> Vec<u64> {
        let ask = Step { now, rnd, chain: ChainId(chain), token_budget, in_flight };
        with_driver::<E, _>(|driver| driver.step(&ask, &words).to_vec())
    }
}
