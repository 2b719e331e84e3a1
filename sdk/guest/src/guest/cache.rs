//! The exports of the `cache` slot.

use super::{Export, with_driver};
use crate::bindings::full_policy::exports::pointsman::policy::cache;
use crate::cache::{CachePolicy, Evict, NewSequence};
use crate::cluster::ChainId;

impl<E: Export<Policy: CachePolicy>> cache::Guest for E {
    fn victims(
        _seq: u64,
        now: u64,
        rnd: u64,
        chain: u32,
        need_blocks: u32,
        free_blocks: u32,
        words: Vec<u64>,
    ) -> Vec<u32> {
        let ask = Evict { now, rnd, chain: ChainId(chain), need_blocks, free_blocks };
        with_driver::<E, _>(|driver| driver.victims(&ask, &words).to_vec())
    }

    fn format(tenant: u32, class: u32, prompt: u32, reserve: u32, pressure_milli: u32, offered: Vec<u64>) -> u32 {
        let ask = NewSequence { tenant, class, prompt, reserve, pressure_milli };
        with_driver::<E, _>(|driver| driver.format(&ask, &offered))
    }
}
