//! Swaps, trials and shadows under full load: no request is lost, nobody but the policies decides, and the log shows who did.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_policy::record::frame::Body;
use pointsman_policy::slo::Slo;
use pointsman_policy::{Artifact, DecisionLog, Guard, PolicyHost, PolicySlot, Shadow, SlotKind};
use pointsman_slots::{amount, hostile, shipped};

fn recorded(host: &PolicyHost, bytes_max: usize) -> (PolicySlot, DecisionLog) {
    let (tap, log) = DecisionLog::start(bytes_max).unwrap();
    (PolicySlot::new(SlotKind::Route, tap, Arc::clone(host.quarantine())), log)
}

/// `POINTSMAN_LONG=1000` for a thousand swaps.
#[test]
fn swaps_at_full_load_lose_nothing() {
    let host = pointsman_slots::host();
    let (slot, log) = recorded(&host, usize::MAX);
    let mut traffic = pointsman_slots::traffic(slot, 3, 1);
    let artifacts: Vec<Artifact> =
        ["route-jsq", "route-round-robin", "route-jffc", "route-sed"].map(shipped).into_iter().collect();
    let swaps = amount(300);
    for swap in 0..swaps {
        let candidate = host.prepare(SlotKind::Route, &artifacts[swap as usize % artifacts.len()], "").unwrap();
        drop(traffic.slots.route.swap_in(candidate, Guard::default()));
        traffic.run(traffic.sent() + 5, 30);
        while traffic.open() < 24 {
            traffic.send();
        }
    }
    traffic.run(traffic.sent(), 30);
    assert_eq!((traffic.answered, traffic.failed), (traffic.sent(), 0));
    let stats = traffic.engine.stats();
    assert_eq!(stats.fallbacks_total.iter().sum::<u64>(), 0, "the builtin decided nothing");

    // One digest for each range of the log, in the order of the swaps.
    traffic.slots.route.flush();
    log.sync();
    let (mut generations, mut decisions) = (BTreeMap::new(), 0);
    let mut current = 0;
    for frame in log.export().frames() {
        match frame.unwrap().1.body {
            Body::Start(start) => {
                assert!(start.generation >= current, "generations only grow");
                current = start.generation;
                let digest = start.digest.expect("a policy, not the builtin");
                assert_eq!(*generations.entry(current).or_insert(digest), digest, "one digest in each range");
            }
            Body::Pick(..) | Body::Pull(..) => decisions += 1,
            _ => {}
        }
    }
    assert_eq!((generations.len() as u64, decisions), (swaps, stats.decisions_total));
}

/// Runs a trial of `challenger` against `route-round-robin` on two chains, of which the first is slower by a factor. Says why it
/// was rolled back, if it was.
fn trial(host: &PolicyHost, challenger: Artifact, slowness: f64, seed: u64) -> Option<String> {
    let (slot, _log) = recorded(host, 0);
    let mut traffic = pointsman_slots::traffic(slot, 2, seed);
    traffic.slowness[0] = slowness;
    drop(
        traffic
            .slots
            .route
            .swap_in(host.prepare(SlotKind::Route, &shipped("route-round-robin"), "").unwrap(), Guard::default()),
    );
    let guard = Guard { slo: Slo { margin: 0.05, requests: 1_000 }, ..Guard::default() };
    let candidate = host.prepare(SlotKind::Route, &challenger, "").unwrap();
    let digest = candidate.digest();
    drop(traffic.slots.route.challenge(candidate, 5_000, guard).unwrap());
    while traffic.slots.route.report().challenger.is_some_and(|trial| trial.requests < 1_000) {
        traffic.run(traffic.sent() + 50, 3);
    }
    assert_eq!(traffic.failed, 0);
    host.quarantine().clear(digest);
    traffic.slots.route.take_notices().first().map(|notice| notice.reason.clone())
}

#[test]
fn a_policy_on_trial_that_makes_requests_slower_is_rolled_back() {
    let host = pointsman_slots::host();
    // It sends its half of the requests to the slow chain, so they take about a fifth longer than those that are spread.
    for seed in 0..5 {
        let why = trial(&host, hostile("always-first"), 1.2, seed).expect("a verdict");
        assert!(why.contains("longer"), "{why}");
    }
}

/// `POINTSMAN_LONG=1000` for a thousand trials.
#[test]
fn a_policy_on_trial_against_itself_is_rolled_back_less_than_once_in_a_hundred() {
    let host = pointsman_slots::host();
    let trials = amount(10);
    let rolled_back =
        (0..trials).filter_map(|seed| trial(&host, shipped("route-round-robin"), 1.2, 1_000 + seed)).count();
    assert!((rolled_back as u64) * 100 <= trials, "{rolled_back} of {trials}");
}

/// Swaps `next` in after 600 requests under `route-jsq`, on two chains of which the first is eight times slower. Says why it was
/// rolled back within 600 more, if it was.
fn watched(host: &PolicyHost, next: &Artifact, seed: u64) -> Option<String> {
    let mut traffic = pointsman_slots::traffic(recorded(host, 0).0, 2, seed);
    traffic.slowness[0] = 8.0;
    let candidate = |artifact: &Artifact| host.prepare(SlotKind::Route, artifact, "").unwrap();
    drop(traffic.slots.route.swap_in(candidate(&shipped("route-jsq")), Guard::default()));
    traffic.run(600, 3);
    let next = candidate(next);
    let digest = next.digest();
    drop(traffic.slots.route.swap_in(next, Guard { watch: Some(1.0), ..Guard::default() }));
    traffic.run(1_200, 3);
    assert_eq!(traffic.failed, 0);
    host.quarantine().clear(digest);
    traffic.slots.route.take_notices().first().map(|notice| notice.reason.clone())
}

#[test]
fn a_policy_that_makes_requests_slower_than_before_is_rolled_back_without_a_trial() {
    let host = pointsman_slots::host();
    for seed in 0..3 {
        let why = watched(&host, &hostile("always-first"), seed).expect("a verdict");
        assert!(why.contains("longer") && why.contains("than before"), "{why}");
    }
}

/// `POINTSMAN_LONG=1000` for a thousand swaps.
#[test]
fn a_policy_after_itself_is_rolled_back_less_than_once_in_a_hundred() {
    let host = pointsman_slots::host();
    let swaps = amount(20);
    let rolled_back = (0..swaps).filter_map(|seed| watched(&host, &shipped("route-jsq"), 500 + seed)).count();
    assert!((rolled_back as u64) * 100 <= swaps, "{rolled_back} of {swaps}");
}

#[test]
fn a_shadow_sees_all_and_decides_nothing() {
    let host = pointsman_slots::host();
    let alone = {
        let (slot, _log) = recorded(&host, 0);
        let mut traffic = pointsman_slots::traffic(slot, 3, 7);
        drop(
            traffic
                .slots
                .route
                .swap_in(host.prepare(SlotKind::Route, &shipped("route-jsq"), "").unwrap(), Guard::default()),
        );
        traffic.run(2_000, 20);
        traffic.engine.stats().clone()
    };
    for (name, agrees) in [("route-jsq", true), ("route-round-robin", false)] {
        let (slot, log) = recorded(&host, usize::MAX);
        let mut traffic = pointsman_slots::traffic(slot, 3, 7);
        drop(
            traffic
                .slots
                .route
                .swap_in(host.prepare(SlotKind::Route, &shipped("route-jsq"), "").unwrap(), Guard::default()),
        );
        let shadow = Shadow::start(&log, host.prepare(SlotKind::Route, &shipped(name), "").unwrap()).unwrap();
        traffic.run(2_000, 20);
        traffic.slots.route.flush();
        log.sync();
        assert_eq!(*traffic.engine.stats(), alone, "the live decisions are those without a shadow");
        let decided = alone.decisions_total;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while shadow.report().decisions + shadow.report().missed < decided {
            assert!(std::time::Instant::now() < deadline, "{:?}", shadow.report());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let report = shadow.report();
        assert_eq!((report.invalid, report.faults.iter().sum::<u64>()), (0, 0), "{report:?}");
        assert_eq!(report.agreed == decided, agrees, "{name}: {report:?}");
        assert!(report.agreed > decided / 4 && report.fuel_max < 20_000, "{report:?}");
    }
}
