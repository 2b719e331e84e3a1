//! The slots that are asked with a window: policies in Wasm against the same in native code, and on traffic.
//!
//! `POINTSMAN_LONG=100000 cargo test --release --workspace --test windows every_window` runs so many histories of each policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_engine::random;
use pointsman_engine::request::RawRequest;
use pointsman_engine::window::WindowPolicy;
use pointsman_policy::exam::traffic::Traffic;
use pointsman_policy::exam::windows;
use pointsman_policy::exam::world::World;
use pointsman_policy::replay::Replay;
use pointsman_policy::{Artifact, DecisionLog, Digest, Guard, PolicySlot, SlotKind, Slots, Tap};
use pointsman_slots::{amount, hostile, natives, shipped};

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

/// `POINTSMAN_LONG=100000` for so many requests.
#[test]
fn a_log_of_batching_and_evictions_is_decided_again_bit_for_bit() {
    let host = pointsman_slots::host();
    let (mut taps, mut logs) = (BTreeMap::new(), BTreeMap::new());
    for slot in SlotKind::LIVE {
        let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
        taps.insert(slot, tap);
        logs.insert(slot, log);
    }
    let slots = Slots::new(|slot| taps.remove(&slot).unwrap(), &Arc::default());
    let mut traffic = Traffic::new(slots, 2, 5).unwrap();
    let guard = Guard { faults: false, ..Guard::default() };
    let batches = ["batch-fcfs", "batch-fair", "batch-priority", "batch-srpt"].map(shipped);
    let caches = ["cache-lru", "cache-cost-aware"].map(shipped);
    let hostile = ["window-trap", "window-loop", "window-flood", "window-hold"].map(hostile);
    let rounds = amount(1_000) / 50;
    for round in 0..rounds as usize {
        let faulty = (round % 3 == 2).then(|| &hostile[round / 3 % hostile.len()]);
        for (slot, honest) in [(SlotKind::Batch, &batches[round % 4]), (SlotKind::Cache, &caches[round % 2])] {
            let candidate = host.prepare(slot, faulty.unwrap_or(honest), "").unwrap();
            drop(traffic.slots.get(slot).unwrap().swap_in(candidate, guard));
        }
        traffic.run(traffic.sent() + 50, 24);
    }
    assert_eq!((traffic.answered, traffic.failed), (rounds * 50, 0));

    let known = |digest: Digest| {
        let found = batches.iter().chain(&caches).chain(&hostile).find(|artifact| artifact.digest() == digest)?;
        // They were built as components, so the digest is that of the component.
        Artifact::new(found.component()).ok()
    };
    let stats = traffic.engine.stats().clone();
    for (slot, stats) in [(SlotKind::Batch, stats.batch), (SlotKind::Cache, stats.cache)] {
        traffic.slots.get(slot).unwrap().flush();
        logs[&slot].sync();
        let mut replay = Replay::new(&host, &known);
        for frame in logs[&slot].export().frames() {
            let (number, frame) = frame.unwrap();
            replay.step(number, &frame).unwrap();
        }
        let report = replay.report();
        assert_eq!((report.differences, report.skipped), (0, 0), "{slot}: {report:?}");
        // After a fault the builtin goes on alone until the next turn.
        assert!(report.decisions <= stats.decisions_total && report.decisions * 10 > stats.decisions_total * 9);
        assert!(report.faults > 10, "{slot}: {report:?}");
    }
}

#[test]
fn a_rehearsal_finds_what_could_not_be_carried_out() {
    let host = pointsman_slots::host();
    let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
    let slots = Slots::only(PolicySlot::new(SlotKind::Batch, tap, Arc::default()));
    let mut traffic = Traffic::new(slots, 2, 6).unwrap();
    drop(
        traffic
            .slots
            .batch
            .swap_in(host.prepare(SlotKind::Batch, &shipped("batch-fcfs"), "").unwrap(), Guard::default()),
    );
    traffic.run(200, 24);
    traffic.slots.batch.flush();
    log.sync();
    let rehearse =
        |artifact: &Artifact| host.rehearse(&host.prepare(SlotKind::Batch, artifact, "").unwrap(), &log.newest());
    let same = rehearse(&shipped("batch-fcfs")).unwrap();
    assert!(same.decisions > 100 && same.agreed == same.decisions, "{same:?}");
    let other = rehearse(&shipped("batch-srpt")).unwrap();
    assert!(other.is_clean() && other.agreed < other.decisions, "{other:?}");
    for (name, words) in [("window-forge", "index"), ("window-loop", "fuel"), ("window-twice", "named twice")] {
        let refusal = rehearse(&hostile(name)).unwrap_err();
        assert!(refusal.to_string().contains(words), "{name}: {refusal}");
    }
}

#[test]
fn swaps_at_full_load_leave_nothing_to_the_builtin() {
    let host = pointsman_slots::host();
    let mut traffic = Traffic::new(Slots::default(), 2, 7).unwrap();
    let names = ["batch-fcfs", "batch-fair", "batch-priority", "batch-srpt"];
    for swap in 0..amount(100) as usize {
        let batch = host.prepare(SlotKind::Batch, &shipped(names[swap % 4]), "").unwrap();
        drop(traffic.slots.batch.swap_in(batch, Guard::default()));
        let cache = ["cache-lru", "cache-cost-aware"][swap % 2];
        let cache = host.prepare(SlotKind::Cache, &shipped(cache), "").unwrap();
        drop(traffic.slots.cache.swap_in(cache, Guard::default()));
        traffic.run(traffic.sent() + 10, 24);
    }
    let stats = traffic.engine.stats();
    assert_eq!(traffic.failed, 0);
    for stats in [stats.batch, stats.cache] {
        assert_eq!(stats.fallbacks_total.iter().sum::<u64>(), 0, "{stats:?}");
    }
}

/// A greedy request of so many prompt tokens, which have nothing in common with any other's, and 8 new ones.
fn request(seed: u64, prompt: usize, tenant: u32, class: u32) -> RawRequest {
    let mut raw = RawRequest {
        prompt: (0..prompt as u64).map(|at| (random::bits(seed, at) % 2) as u32).collect(),
        max_new_tokens: Some(8),
        tenant,
        class,
        ..RawRequest::default()
    };
    raw.sampling.temperature = 0.0;
    raw
}

/// Mean time to the first token of the last request of each round, in microseconds, and of all. A round is six long prompts of
/// tenant 0 and then that one.
fn rounds(policy: &str, last: impl Fn(u64) -> RawRequest) -> (f64, f64) {
    let host = pointsman_slots::host();
    let mut slots = Slots::default();
    drop(slots.batch.swap_in(host.prepare(SlotKind::Batch, &shipped(policy), "").unwrap(), Guard::default()));
    let mut traffic = Traffic::new(slots, 1, 1).unwrap();
    for round in 0..50 {
        (0..6).for_each(|n| traffic.submit(request(round * 10 + n, 120, 0, 0)));
        traffic.submit(last(round));
        traffic.run(0, 0);
    }
    assert_eq!(traffic.failed, 0);
    let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len() as f64;
    let all: Vec<u64> = traffic.first_tokens.iter().map(|(_, time)| *time).collect();
    let last = traffic.first_tokens.iter().filter(|(id, _)| id.0 % 7 == 6).map(|(_, time)| *time);
    (mean(&last.collect::<Vec<_>>()), mean(&all))
}

#[test]
fn each_batch_policy_does_what_it_is_for() {
    let short = |round| request(round + 9_000, 20, 0, 0);
    let (fcfs, srpt) = (rounds("batch-fcfs", short), rounds("batch-srpt", short));
    assert!(srpt.0 < fcfs.0 * 0.5 && srpt.1 < fcfs.1, "the shortest first: {srpt:?} against {fcfs:?} us");
    let guest = |round| request(round + 9_000, 120, 1, 0);
    let (fcfs, fair) = (rounds("batch-fcfs", guest), rounds("batch-fair", guest));
    assert!(fair.0 < fcfs.0 * 0.5, "another tenant does not wait for six prompts of one: {fair:?} against {fcfs:?} us");
    let urgent = |round| request(round + 9_000, 120, 0, 1);
    let (fcfs, priority) = (rounds("batch-fcfs", urgent), rounds("batch-priority", urgent));
    assert!(priority.0 < fcfs.0 * 0.5, "the higher class first: {priority:?} against {fcfs:?} us");
}

/// Prompt tokens that were found in the cache: a few beginnings that are asked for again and again, among one-off prompts.
fn hits(policy: &str) -> u64 {
    let host = pointsman_slots::host();
    let mut slots = Slots::default();
    drop(slots.cache.swap_in(host.prepare(SlotKind::Cache, &shipped(policy), "").unwrap(), Guard::default()));
    let mut traffic = Traffic::new(slots, 1, 1).unwrap();
    for n in 0..600 {
        let mut raw = request(5_000 + n, 160, 0, 0);
        // Two beginnings twice each, then eight prompts that nobody asks for again.
        if n % 12 < 4 {
            let common = request(n % 12 / 2, 144, 0, 0).prompt;
            raw.prompt[..common.len()].copy_from_slice(&common);
        }
        traffic.submit(raw);
        traffic.run(0, 0);
    }
    assert_eq!(traffic.failed, 0);
    traffic.engine.stats().prefix_hits_tokens_total
}

#[test]
fn the_cost_aware_cache_keeps_what_is_asked_for_again() {
    let (lru, cost) = (hits("cache-lru"), hits("cache-cost-aware"));
    assert!(cost * 2 > lru * 3, "{cost} tokens against {lru}");
}
