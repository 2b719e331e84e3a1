//! Chains: order, bounds, refusals and faults.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use pointsman_engine::ids::{BlockId, ChainId};
use pointsman_engine::port::{Logits, StepPlan};
use pointsman_stage::{Chain, ChainDown, ChainOptions};
use pointsman_tensor::backend::Backend;
use pointsman_tensor::weights::TensorType;

use crate::harness::{Harness, KV_BLOCKS, load, options, slice, tokens};
use crate::naive::{Naive, POISON};
use crate::tiny::Tiny;

fn setup() -> (Arc<Naive>, pointsman_stage::Model<Naive>) {
    let backend = Arc::new(Naive { faulty: true, ..Naive::default() });
    let model = load(&Tiny::new(TensorType::F32), &*backend);
    (backend, model)
}

#[test]
fn micro_batches_in_flight_together_come_back_in_order_and_unchanged() {
    let (backend, model) = setup();
    let mut alone = Harness::new(&model, &backend, 1);
    let mut pipelined = Harness::new(&model, &backend, 3);
    let prompts: Vec<Vec<u32>> = (0..3).map(|n| tokens(n, 9)).collect();
    let prompt = |n: usize| vec![slice(n, 0, &prompts[n], Logits::Last)];
    (0..3).for_each(|n| pipelined.launch(prompt(n)));
    for n in 0..3 {
        assert_eq!(pipelined.result(n as u64), alone.run(prompt(n)), "sequence {n}");
    }
}

#[test]
fn chains_share_weights_but_not_sequences() {
    let (backend, model) = setup();
    let (a, b) = (tokens(0, 20), tokens(1, 20));
    let mut undisturbed = Harness::new(&model, &backend, 2);
    let mut one = Harness::new(&model, &backend, 2);
    let mut other = Harness::new(&model, &backend, 1);
    for at in 0..20 {
        // Same blocks, other tokens.
        one.launch(vec![slice(0, at, &a[at..=at], Logits::Last)]);
        other.launch(vec![slice(0, at, &b[at..=at], Logits::Last)]);
        assert_ne!(one.result(at as u64), other.result(at as u64));
    }
    let last = vec![slice(0, 19, &a[19..], Logits::Last)];
    undisturbed.run(vec![slice(0, 0, &a[..19], Logits::None)]).unwrap();
    assert_eq!(undisturbed.run(last.clone()), one.run(last));
}

#[test]
fn a_plan_that_does_not_fit_is_answered_in_its_place() {
    let (backend, model) = setup();
    let mut harness = Harness::new(&model, &backend, 2);
    let good = || vec![slice(0, 0, &tokens(0, 4), Logits::Last)];
    let mut bad = good();
    bad[0].blocks = [BlockId(KV_BLOCKS as u32)].into();
    let expected = harness.run(good());
    harness.launch(bad);
    harness.launch(good());
    assert_eq!(harness.result(1), Err(format!("request 0: KV block {KV_BLOCKS} is outside the store of {KV_BLOCKS}")));
    assert_eq!(harness.result(2), expected);
    assert_eq!(harness.run(vec![]), Err("the step has no slices".into()));

    harness.chain.launch(StepPlan { chain: ChainId(5), batch: 4, slices: good() }).unwrap();
    assert_eq!(harness.result(4), Err("the step is for chain 5, but this is chain 0".into()));
}

#[test]
fn a_panic_on_the_device_fails_its_step_and_no_other() {
    let (backend, model) = setup();
    for stages in [1, 3] {
        let mut calm = Harness::new(&model, &backend, stages);
        let mut harness = Harness::new(&model, &backend, stages);
        let prompt = || vec![slice(0, 0, &tokens(0, 9), Logits::Last)];
        let decode = || vec![slice(0, 9, &[40], Logits::Last)];
        assert_eq!(calm.run(prompt()), harness.run(prompt()));
        let failed = harness.run(vec![slice(1, 0, &[20, POISON], Logits::Last)]);
        assert_eq!(failed, Err(format!("the device failed: token {POISON} is poison")));
        assert_eq!(calm.run(decode()), harness.run(decode()), "the other sequence goes on");
        assert_eq!(
            calm.run(vec![slice(1, 0, &[20, 21], Logits::All)]),
            harness.run(vec![slice(1, 0, &[20, 21], Logits::All)])
        );
    }
}

#[test]
fn refuses_more_micro_batches_than_stages() {
    let (backend, model) = setup();
    let mut harness = Harness::new(&model, &backend, 2);
    let plan = |batch| StepPlan { chain: ChainId(0), batch, slices: vec![slice(0, 0, &[20], Logits::Last)] };
    let turn = backend.take_turn();
    harness.launch(plan(0).slices);
    harness.launch(plan(1).slices);
    assert_eq!(harness.chain.launch(plan(2)), Err(ChainDown::Full(ChainId(0))));
    drop(turn);
    assert!(harness.result(0).is_ok());
    assert_eq!(harness.chain.launch(plan(2)), Ok(()), "a result makes room for the next launch");
    assert!(harness.result(1).is_ok() && harness.result(2).is_ok());
}

#[test]
fn dropping_a_chain_finishes_what_was_launched() {
    let (backend, model) = setup();
    let mut harness = Harness::new(&model, &backend, 3);
    (0..3).for_each(|n| harness.launch(vec![slice(n, 0, &tokens(n, 6), Logits::Last)]));
    drop(harness.chain);
    let finished: Vec<_> = harness.results.iter().map(|result| (result.batch, result.logits.is_ok())).collect();
    assert_eq!(finished, [(0, true), (1, true), (2, true)]);
}

#[test]
fn a_callback_that_panics_stops_the_chain() {
    let (backend, model) = setup();
    let chain = Chain::spawn(&model, backend, options(2), Box::new(|_| panic!("the callback is broken"))).unwrap();
    let plan = |batch| StepPlan { chain: ChainId(0), batch, slices: vec![slice(0, 0, &[20], Logits::Last)] };
    chain.launch(plan(0)).unwrap();
    let (_tell, never) = bounded::<()>(1);
    let stopped = (1..1000).any(|batch| {
        let _ = never.recv_timeout(Duration::from_millis(5));
        chain.launch(plan(batch)) == Err(ChainDown::Stopped(ChainId(0)))
    });
    assert!(stopped);
}

#[test]
fn refuses_impossible_chains() {
    let (backend, model) = setup();
    let refusal = |options: ChainOptions| {
        Chain::spawn(&model, Arc::clone(&backend), options, Box::new(|_| ())).err().map(|error| error.to_string())
    };
    assert_eq!(refusal(options(4)), None);
    assert_eq!(refusal(options(5)).unwrap(), "can not split 4 layers over 5 stages; choose 1 to 4");
    assert_eq!(refusal(options(0)).unwrap(), "can not split 4 layers over 0 stages; choose 1 to 4");
    let empty = ChainOptions { kv_blocks: 0, ..options(1) };
    assert_eq!(
        refusal(empty).unwrap(),
        "a chain needs at least one KV block of at least one token, but got 0 blocks of 16"
    );
}
