//! Policies in Wasm against the same in native code, and against the builtin, over random histories: the same answers, whoever is
//! asked, also after the policy was swapped in midway.
//!
//! `POINTSMAN_LONG=100000 cargo test --release -p pointsman-slots --test parity` runs so many histories of each policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::RouteDecision;
use pointsman_engine::ids::ChainId;
use pointsman_engine::port::RoutePolicy;
use pointsman_engine::snapshot::Snapshot;
use pointsman_policy::exam::world::World;
use pointsman_policy::{Guard, PolicySlot, SlotKind};
use pointsman_slots::{amount, natives, shipped};

fn renew(policy: &mut impl RoutePolicy, view: &Snapshot) -> bool {
    let wanted = policy.wants_snapshot();
    if wanted {
        policy.init(view).unwrap();
    }
    wanted
}

/// One history of one policy, twice: through the slot and natively.
fn history(slot: &mut PolicySlot, start: natives::Start, seed: u64, chains: u32, steps: u32, name: &str) {
    let mut world = World::new(seed, chains);
    slot.init(&world.view).unwrap();
    let mut native = start(&world.view);
    for step in 0..steps {
        let events: Vec<_> = (0..world.below(9)).map(|_| world.event()).collect();
        if !events.is_empty() {
            slot.apply(world.view.seq, &events).unwrap();
            native.apply(world.view.seq, &events);
        }
        let ask = world.pick();
        let overlap = if slot.wants_overlap() { world.overlap(&ask) } else { Vec::new() };
        let answer = slot.pick(&ask, &overlap).map(RouteDecision::encode);
        assert_eq!(
            answer,
            Ok(native.pick(&ask, &overlap)),
            "{name}, seed {seed}, step {step}: {ask:?}\n{:?}",
            world.view
        );
        let (ask, waiting) = world.pull();
        let index = slot.pull(&ask, &waiting).map(|index| index.unwrap_or(u32::MAX));
        assert_eq!(index, Ok(native.pull(&ask, &waiting)), "{name}, seed {seed}, step {step}: {ask:?}");
    }
}

#[test]
fn every_policy_decides_in_wasm_as_it_does_natively() {
    let host = pointsman_slots::host();
    for (name, start) in natives::ALL {
        let artifact = shipped(name);
        for seed in 0..amount(15) {
            // A policy keeps state from instance to instance, so each history has one of its own.
            let mut slot = PolicySlot::default();
            drop(slot.swap_in(host.prepare(SlotKind::Route, &artifact, "").unwrap(), Guard::default()));
            let (chains, steps) = if seed % 20 == 0 { (512, 20) } else { (1 + seed as u32 % 9, 12) };
            history(&mut slot, *start, seed, chains, steps, name);
        }
    }
}

#[test]
fn jsq_in_wasm_decides_as_the_builtin_does() {
    let host = pointsman_slots::host();
    let jsq = shipped("route-jsq");
    for (seed, chains) in [(1, 1), (2, 2), (3, 7), (4, 64), (5, 512)] {
        let mut world = World::new(seed, chains);
        let mut slot = PolicySlot::default();
        drop(slot.swap_in(host.prepare(SlotKind::Route, &jsq, "").unwrap(), Guard::default()));
        let mut native = Builtin::default();
        for step in 0..600 {
            if step == 300 {
                drop(slot.swap_in(host.prepare(SlotKind::Route, &jsq, "").unwrap(), Guard::default()));
            }
            let events: Vec<_> = (0..world.below(9)).map(|_| world.event()).collect();
            if !renew(&mut slot, &world.view) {
                slot.apply(world.view.seq, &events).unwrap();
            }
            if !renew(&mut native, &world.view) {
                native.apply(world.view.seq, &events).unwrap();
            }
            let ask = world.pick();
            assert_eq!(
                slot.pick(&ask, &[]),
                native.pick(&ask, &[]),
                "seed {seed}, step {step}: {ask:?}\n{:?}",
                world.view
            );
            let (ask, waiting) = world.pull();
            assert_eq!(slot.pull(&ask, &waiting), native.pull(&ask, &waiting), "seed {seed}, step {step}: {ask:?}");
        }
        assert_eq!(slot.report().faults.iter().sum::<u64>(), 0);
    }
}

#[test]
fn round_robin_hands_its_turn_over() {
    let host = pointsman_slots::host();
    let mut slot = PolicySlot::default();
    let mut world = World::new(9, 3);
    for chain in &mut world.view.chains {
        (chain.capacity, chain.free_tokens) = (100, 1_000_000);
    }
    let mut picks = Vec::new();
    for step in 0..8 {
        if step % 2 == 0 {
            drop(
                slot.swap_in(
                    host.prepare(SlotKind::Route, &shipped("route-round-robin"), "").unwrap(),
                    Guard::default(),
                ),
            );
        }
        renew(&mut slot, &world.view);
        picks.push(slot.pick(&world.pick(), &[]).unwrap());
    }
    let turn = |chain| RouteDecision::Dispatch(ChainId(chain));
    assert_eq!(picks, [0, 1, 2, 0, 1, 2, 0, 1].map(turn));
}

#[test]
fn describes_itself_by_name_and_refuses_unknown_settings() {
    let host = pointsman_slots::host();
    for (name, slot) in natives::all() {
        assert_eq!(&*host.prepare(slot, &shipped(name), "").unwrap().descriptor().name, name);
        let refusal = host.prepare(slot, &shipped(name), r#"{"no-such-setting": 1}"#).unwrap_err();
        assert_eq!(refusal.stage, pointsman_policy::Stage::Init, "{refusal}");
    }
}
