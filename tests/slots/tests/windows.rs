//! The slots that are asked with a window: policies in Wasm against the same in native code, and on traffic.
//!
//! `POINTSMAN_LONG=100000 cargo test --release --workspace --test windows every_window` runs so many histories of each policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use std::sync::Arc;

use pointsman_engine::window::WindowPolicy;
use pointsman_policy::exam::windows;
use pointsman_policy::exam::world::World;
use pointsman_policy::{Guard, PolicySlot, SlotKind, Tap};
use pointsman_slots::{amount, natives, shipped};

#[test]
fn every_window_is_answered_in_wasm_as_natively() {
    let host = pointsman_slots::host();
    for (name, kind, start) in natives::WINDOWS {
        let (artifact, question) = (shipped(name), kind.window().unwrap());
        for seed in 0..amount(15) {
            let mut slot = PolicySlot::new(*kind, Tap::default(), Arc::default());
            drop(slot.swap_in(host.prepare(*kind, &artifact, "").unwrap(), Guard::default()));
            let (mut world, mut native) = (World::new(seed, 3), start());
            slot.init(&world.view).unwrap();
            for step in 0..12 {
                let words: Vec<u64> = (0..world.below(5)).flat_map(|_| windows::served(&mut world).words()).collect();
                world.view.seq += words.len() as u64 / 2;
                if *kind == SlotKind::Batch && !words.is_empty() {
                    slot.apply(world.view.seq, &words).unwrap();
                    native.apply(world.view.seq, &words);
                }
                let (ask, window) = windows::question(&mut world, question);
                let mut answer = Vec::new();
                slot.ask(&ask, &window, &mut answer).unwrap();
                assert_eq!(answer, native.ask(&ask, &window), "{name}, seed {seed}, step {step}: {ask:?}");
            }
        }
    }
}

/// The policies that stand for the builtin answer as it does.
#[test]
fn fcfs_and_lru_in_wasm_decide_as_the_builtin_does() {
    let host = pointsman_slots::host();
    for (name, kind) in [("batch-fcfs", SlotKind::Batch), ("cache-lru", SlotKind::Cache)] {
        let question = kind.window().unwrap();
        let mut slot = PolicySlot::new(kind, Tap::default(), Arc::default());
        drop(slot.swap_in(host.prepare(kind, &shipped(name), "").unwrap(), Guard::default()));
        let mut world = World::new(3, 3);
        slot.init(&world.view).unwrap();
        for step in 0..600 {
            let (ask, window) = windows::question(&mut world, question);
            let (mut answer, mut builtin) = (Vec::new(), Vec::new());
            slot.ask(&ask, &window, &mut answer).unwrap();
            question.builtin(&ask, window.len() / question.words(), &mut builtin);
            assert_eq!(answer, builtin, "{name}, step {step}: {ask:?}");
        }
    }
}
