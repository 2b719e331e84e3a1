//! Hostile policies in charge of real traffic: every request is answered, every fault is counted once, in its class.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails by panicking")]

use std::sync::Arc;

use pointsman_engine::decision::FaultClass;
use pointsman_policy::exam::traffic::Traffic;
use pointsman_policy::{Guard, PolicyHost, PolicySlot, Quarantine, SlotKind, Slots, Tap};
use pointsman_slots::{amount, hostile, shipped};

fn fallbacks(traffic: &Traffic, class: FaultClass) -> u64 {
    let at = FaultClass::ALL.iter().position(|c| *c == class).unwrap();
    traffic.engine.stats().fallbacks_total[at]
}

/// A slot with `route-jsq` under a hostile guest.
fn slot(host: &PolicyHost, name: &str, guard: Guard) -> PolicySlot {
    let mut slot = PolicySlot::new(SlotKind::Route, Tap::default(), Arc::clone(host.quarantine()));
    drop(slot.swap_in(host.prepare(SlotKind::Route, &shipped("route-jsq"), "").unwrap(), Guard::default()));
    drop(slot.swap_in(host.prepare(SlotKind::Route, &hostile(name), "").unwrap(), guard));
    slot
}

const SUFFERED: Guard = Guard {
    faults: false,
    slo: pointsman_policy::slo::Slo { margin: 0.05, requests: 100 },
    promote: false,
    watch: None,
};

#[test]
fn one_call_in_ten_traps_and_nothing_is_lost() {
    let host = pointsman_slots::host();
    let requests = amount(10_000);
    let mut traffic = pointsman_slots::traffic(slot(&host, "trap-on-tenth", SUFFERED), 3, 1);
    // Few at once, so that every request is picked and none is pulled: a trap for each tenth request, exactly.
    traffic.run(requests, 4);
    assert_eq!((traffic.answered, traffic.failed), (requests, 0));
    assert_eq!(fallbacks(&traffic, FaultClass::Trap), requests / 10);
    assert_eq!(traffic.engine.stats().fallbacks_total.iter().sum::<u64>(), requests / 10, "and no other class");
    assert_eq!(traffic.slots.route.report().faults.iter().sum::<u64>(), requests / 10);
}

#[test]
fn whatever_goes_wrong_has_its_class_and_costs_no_request() {
    let host = pointsman_slots::host();
    for (name, class) in [
        ("trap-on-fourth", FaultClass::Trap),
        ("loop-on-fourth", FaultClass::Fuel),
        ("memory-on-fourth", FaultClass::Memory),
        ("recurse-on-fourth", FaultClass::Stack),
        ("forged-chain", FaultClass::Invalid),
    ] {
        let mut traffic = pointsman_slots::traffic(slot(&host, name, SUFFERED), 2, 2);
        traffic.run(400, 24);
        assert_eq!((traffic.answered, traffic.failed), (400, 0), "{name}");
        assert!(fallbacks(&traffic, class) > 20, "{name}: {:?}", traffic.engine.stats().fallbacks_total);
    }
}

#[test]
fn with_the_guard_on_the_policy_before_it_takes_over() {
    let host = pointsman_slots::host();
    for name in ["forged-chain", "loop-on-fourth"] {
        let mut traffic = pointsman_slots::traffic(slot(&host, name, Guard::default()), 2, 3);
        traffic.run(400, 24);
        assert_eq!((traffic.answered, traffic.failed), (400, 0), "{name}");
        assert_eq!(&*traffic.slots.route.report().active.unwrap().descriptor.name, "route-jsq", "{name}");
        assert_eq!(traffic.slots.route.take_notices().len(), 1, "{name}");
    }
}

#[test]
fn one_that_never_dispatches_is_found_by_the_watchdog() {
    let host = pointsman_slots::host();
    let mut traffic = pointsman_slots::traffic(slot(&host, "always-queue", Guard::default()), 2, 4);
    traffic.run(100, 24);
    assert_eq!((traffic.answered, traffic.failed), (100, 0));
    assert_eq!(fallbacks(&traffic, FaultClass::Stall), 1, "after the first it is gone");
    assert_eq!(&*traffic.slots.route.report().active.unwrap().descriptor.name, "route-jsq");
    assert!(traffic.slots.route.take_notices()[0].reason.contains("left waiting"));
}

#[test]
fn one_that_always_takes_one_chain_is_slow_but_harmless() {
    let host = pointsman_slots::host();
    let mut traffic = pointsman_slots::traffic(slot(&host, "always-first", Guard::default()), 2, 5);
    traffic.run(300, 24);
    assert_eq!((traffic.answered, traffic.failed), (300, 0));
    let chains = &traffic.engine.stats().chains;
    assert!(chains[0].dispatched_total > 0 && traffic.engine.stats().fallbacks_total.iter().sum::<u64>() == 0);
}

/// Slots with a hostile guest for batching and for the cache, over the policies that ship.
fn windows(host: &PolicyHost, name: &str, guard: Guard) -> Slots {
    let mut slots = Slots::new(|_| Tap::default(), &Arc::new(Quarantine::default()));
    for (slot, honest) in [(SlotKind::Batch, "batch-srpt"), (SlotKind::Cache, "cache-lru")] {
        let seat = slots.get(slot).unwrap();
        drop(seat.swap_in(host.prepare(slot, &shipped(honest), "").unwrap(), Guard::default()));
        drop(seat.swap_in(host.prepare(slot, &hostile(name), "").unwrap(), guard));
    }
    slots
}

#[test]
fn whatever_a_window_is_answered_with_costs_no_request() {
    let host = pointsman_slots::host();
    for (name, class) in [
        ("window-trap", FaultClass::Trap),
        ("window-loop", FaultClass::Fuel),
        ("window-forge", FaultClass::Invalid),
        ("window-twice", FaultClass::Invalid),
        ("window-flood", FaultClass::Oversize),
        ("window-hold", FaultClass::Invalid),
    ] {
        let mut traffic = Traffic::new(windows(&host, name, SUFFERED), 2, 6).unwrap();
        traffic.run(400, 24);
        assert_eq!((traffic.answered, traffic.failed), (400, 0), "{name}");
        let stats = traffic.engine.stats();
        for (slot, stats) in [("batch", stats.batch), ("cache", stats.cache)] {
            let (faults, all) = (stats.fallbacks_total[class.index()], stats.fallbacks_total.iter().sum::<u64>());
            // Those that hold everything may do so while something is in flight.
            assert!(faults > 5 && all == faults, "{name}, {slot}: {stats:?}");
        }
        assert!(stats.prefix_hits_tokens_total > 0 && stats.prefix_evicted_blocks_total > 0, "{name}: {stats:?}");
    }
}

#[test]
fn with_the_guard_on_the_policies_before_it_take_over() {
    let host = pointsman_slots::host();
    for name in ["window-trap", "window-forge", "window-hold"] {
        let mut traffic = Traffic::new(windows(&host, name, Guard::default()), 2, 7).unwrap();
        traffic.run(400, 24);
        assert_eq!((traffic.answered, traffic.failed), (400, 0), "{name}");
        for (slot, honest) in [(SlotKind::Batch, "batch-srpt"), (SlotKind::Cache, "cache-lru")] {
            let seat = traffic.slots.get(slot).unwrap();
            assert_eq!(&*seat.report().active.unwrap().descriptor.name, honest, "{name}");
            let notices = seat.take_notices();
            assert!(notices.len() == 1 && notices[0].slot == slot, "{name}");
        }
    }
}

#[test]
fn one_that_starves_a_sequence_is_taken_out() {
    let host = pointsman_slots::host();
    let mut traffic = Traffic::new(windows(&host, "window-starve", Guard::default()), 1, 8).unwrap();
    traffic.run(300, 24);
    assert_eq!((traffic.answered, traffic.failed), (300, 0));
    let stats = traffic.engine.stats();
    assert_eq!(stats.batch.fallbacks_total[FaultClass::Stall.index()], 1, "after the first it is gone: {stats:?}");
    assert_eq!(&*traffic.slots.batch.report().active.unwrap().descriptor.name, "batch-srpt");
    assert!(traffic.slots.batch.take_notices()[0].reason.contains("held back"));
}
