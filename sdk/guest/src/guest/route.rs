//! The exports of the `route` slot.

use super::{Export, with_driver};
use crate::bindings::full_policy::exports::pointsman::policy::route;
use crate::cluster::ChainId;
use crate::route::{Pull, Request, RoutePolicy};

impl<E: Export<Policy: RoutePolicy>> route::Guest for E {
    fn apply(seq: u64, words: Vec<u64>) {
        with_driver::<E, _>(|driver| driver.apply(seq, &words));
    }

    fn pick(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
    ) -> u64 {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        with_driver::<E, _>(|driver| driver.pick(&ask))
    }

    fn pick_affine(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
        overlap: Vec<u64>,
    ) -> u64 {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        with_driver::<E, _>(|driver| driver.pick_affine(&ask, &overlap))
    }

    fn trace(
        _seq: u64,
        now: u64,
        rnd: u64,
        tenant: u32,
        class: u32,
        prompt: u32,
        reserve: u32,
        deadline: u64,
        session: u64,
        hints: u32,
        overlap: Vec<u64>,
    ) -> Vec<route::Candidate> {
        let ask = Request { now, rnd, tenant, class, prompt, reserve, deadline, session, hints };
        let scores = with_driver::<E, _>(|driver| driver.trace(&ask, &overlap));
        scores.into_iter().map(|it| route::Candidate { chain: it.chain.0, score: it.score }).collect()
    }

    fn pull(_seq: u64, now: u64, rnd: u64, chain: u32, words: Vec<u64>) -> u32 {
        let ask = Pull { now, rnd, chain: ChainId(chain) };
        with_driver::<E, _>(|driver| driver.pull(&ask, &words))
    }
}
