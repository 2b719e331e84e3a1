//! The decision log replayed: the same answers and the same fuel, kills included; damage found where it is; other policies asked
//! the same questions; single decisions explained.
//!
//! `POINTSMAN_LONG=1000000 cargo test --release -p pointsman-slots --test replay` does so with a million decisions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails by panicking")]

use std::sync::Arc;

use pointsman_engine::decision::{FaultClass, RouteDecision};
use pointsman_policy::exam::traffic::Traffic;
use pointsman_policy::record::LogFile;
use pointsman_policy::replay::explain::explain;
use pointsman_policy::replay::{Replay, ReplayReport};
use pointsman_policy::slo::Slo;
use pointsman_policy::{Artifact, DecisionLog, Digest, Guard, PolicyHost, PolicySlot, SlotKind};
use pointsman_slots::{amount, hostile, shipped};

const NAMES: [&str; 6] =
    ["route-jsq", "route-round-robin", "route-power-of-two", "route-cache-aware", "route-slo", "route-sed"];
const HOSTILE: [&str; 4] = ["trap-on-fourth", "loop-on-fourth", "memory-on-fourth", "recurse-on-fourth"];

fn find(digest: Digest) -> Option<Artifact> {
    let all = NAMES.map(shipped).into_iter().chain(HOSTILE.map(hostile));
    all.into_iter().find(|artifact| artifact.digest() == digest)
}

/// Many decisions by good and hostile policies in turns, on both arms, and by the builtin. The log is kept whole.
fn traffic(host: &PolicyHost, decisions: u64) -> (Traffic, DecisionLog) {
    let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
    let mut traffic =
        pointsman_slots::traffic(PolicySlot::new(SlotKind::Route, tap, Arc::clone(host.quarantine())), 4, 11);
    let guard = Guard { faults: false, slo: Slo { margin: 9.0, requests: u32::MAX }, promote: false, watch: None };
    let round = decisions / 20;
    for swap in 0.. {
        if traffic.engine.stats().decisions_total >= decisions {
            break;
        }
        match swap % 11 {
            10 => drop(traffic.slots.route.eject()),
            n @ 6.. => drop(
                traffic
                    .slots
                    .route
                    .swap_in(host.prepare(SlotKind::Route, &hostile(HOSTILE[n - 6]), "").unwrap(), guard),
            ),
            n => {
                drop(traffic.slots.route.swap_in(host.prepare(SlotKind::Route, &shipped(NAMES[n]), "").unwrap(), guard))
            }
        }
        if swap % 3 == 0 {
            drop(traffic.slots.route.challenge(
                host.prepare(SlotKind::Route, &shipped(NAMES[swap % 6]), "").unwrap(),
                3_000,
                guard,
            ));
        }
        let until = traffic.engine.stats().decisions_total + round;
        while traffic.engine.stats().decisions_total < until {
            traffic.run(traffic.sent() + 50, 40);
            // Made-up traffic comes faster than any real one; the recorder may catch up.
            traffic.slots.route.flush();
            log.sync();
        }
    }
    (traffic, log)
}

fn replay(host: &PolicyHost, log: &LogFile) -> ReplayReport {
    let mut replay = Replay::new(host, &find);
    for frame in log.frames() {
        let (number, frame) = frame.unwrap();
        replay.step(number, &frame).unwrap();
    }
    replay.report().clone()
}

#[test]
fn a_replay_is_bit_identical_kills_included() {
    let host = pointsman_slots::host();
    let (traffic, log) = traffic(&host, amount(5_000));
    let stats = traffic.engine.stats();
    assert_eq!(log.totals().1, 0, "nothing was dropped");
    let report = replay(&host, &log.export());
    assert_eq!((report.differences, report.skipped), (0, 0), "{report:?}");
    assert_eq!(report.decisions, stats.decisions_total);
    assert_eq!(report.faults, stats.fallbacks_total.iter().sum::<u64>());
    assert!(report.faults > report.decisions / 50, "{report:?}");
    println!("{report:?}, {} bytes", log.export().0.len());
}

#[test]
fn one_flipped_bit_is_found_at_its_frame() {
    let host = pointsman_slots::host();
    let (_, log) = traffic(&host, 500);
    let whole = log.export();
    let ends: Vec<usize> = {
        // Where each frame ends, its hash included.
        let mut at = 32;
        let mut ends = Vec::new();
        while at < whole.0.len() {
            let words = u32::from_le_bytes(whole.0[at..at + 4].try_into().unwrap()) as usize + 1 + 2;
            at += 8 * words;
            ends.push(at);
        }
        ends
    };
    assert!(ends.len() > 1_000);
    for n in 0..400 {
        let bit = 8 * 32 + (n * 7_919_u64 * 8_191) as usize % (8 * (whole.0.len() - 32));
        let mut damaged = whole.clone();
        damaged.0[bit / 8] ^= 1 << (bit % 8);
        let damage = damaged.frames().find_map(Result::err).expect("the damage is found");
        let frame = ends.partition_point(|end| *end <= bit / 8) as u64;
        assert_eq!(damage.frame, frame, "bit {bit}: {damage}");
    }
    let mut short = whole.clone();
    short.0.truncate(whole.0.len() - 5);
    assert_eq!(short.frames().find_map(Result::err).unwrap().frame, ends.len() as u64 - 1);
    assert!(LogFile(b"not a log at all, but long enough".to_vec()).frames().next().unwrap().is_err());
    assert!(LogFile(Vec::new()).frames().next().unwrap().is_err());
}

#[test]
fn each_part_of_a_bounded_log_can_be_replayed_by_itself() {
    let host = pointsman_slots::host();
    let (tap, log) = DecisionLog::start(0).unwrap();
    let mut traffic = pointsman_slots::traffic(PolicySlot::new(SlotKind::Route, tap, Arc::default()), 4, 11);
    drop(
        traffic
            .slots
            .route
            .swap_in(host.prepare(SlotKind::Route, &shipped("route-round-robin"), "").unwrap(), Guard::default()),
    );
    traffic.run(25_000, 40);
    traffic.slots.route.flush();
    log.sync();
    let report = replay(&host, &log.export());
    assert!(report.decisions < traffic.engine.stats().decisions_total, "the oldest part is gone");
    assert_eq!((report.differences, report.skipped), (0, 0), "{report:?}");
    assert!(report.decisions > 1_000, "{report:?}");
}

#[test]
fn another_policy_is_asked_the_same_questions() {
    let host = pointsman_slots::host();
    let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
    let mut traffic = pointsman_slots::traffic(PolicySlot::new(SlotKind::Route, tap, Arc::default()), 4, 11);
    drop(
        traffic
            .slots
            .route
            .swap_in(host.prepare(SlotKind::Route, &shipped("route-jsq"), "").unwrap(), Guard::default()),
    );
    traffic.run(1_000, 20);
    traffic.slots.route.flush();
    log.sync();
    let frames: Vec<_> = log.export().frames().map(|frame| frame.unwrap().1).collect();
    let compare = |name: Artifact| {
        let mut rival = host.rival(host.prepare(SlotKind::Route, &name, "").unwrap());
        frames.iter().for_each(|frame| rival.step(frame));
        rival.settle();
        rival.report().clone()
    };
    let same = compare(shipped("route-jsq"));
    assert_eq!((same.agreed, same.missed), (traffic.engine.stats().decisions_total, 0), "{same:?}");
    assert!(compare(shipped("route-jiq")).agreed < same.agreed);
    // The same is the rehearsal before a swap: what will fault is found before it is in charge.
    let rehearse =
        |artifact: Artifact| host.rehearse(&host.prepare(SlotKind::Route, &artifact, "").unwrap(), &log.newest());
    for name in NAMES {
        assert!(rehearse(shipped(name)).is_ok_and(|report| report.decisions > 100), "{name}");
    }
    for name in ["trap-on-fourth", "loop-on-fourth", "forged-chain"] {
        let refused = rehearse(hostile(name)).unwrap_err();
        assert_eq!(refused.stage, pointsman_policy::Stage::Rehearsal, "{refused}");
    }
}

#[test]
fn a_decision_is_explained_with_the_scores_behind_it() {
    let host = pointsman_slots::host();
    for (name, native) in [(Some("route-cache-aware"), false), (Some("route-jffc"), false), (None, true)] {
        let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
        let mut traffic = pointsman_slots::traffic(PolicySlot::new(SlotKind::Route, tap, Arc::default()), 4, 11);
        if let Some(name) = name {
            drop(
                traffic
                    .slots
                    .route
                    .swap_in(host.prepare(SlotKind::Route, &shipped(name), "").unwrap(), Guard::default()),
            );
        }
        traffic.run(300, 12);
        traffic.slots.route.flush();
        log.sync();
        let find = |digest| name.map(shipped).filter(|artifact| artifact.digest() == digest);
        let mut scored = 0;
        for request in (0..300).step_by(7) {
            let words = log.find(request).expect("each decision is in the log");
            let told = explain(&host, &find, &words).unwrap().expect("an explanation");
            assert_eq!((told.ask.id.0, told.chains.len(), told.policy.1.is_none()), (request, 4, native));
            let best =
                told.chains.iter().filter_map(|it| Some((it.score?, it.chain.id))).min_by(|a, b| a.0.total_cmp(&b.0));
            if let (Some(RouteDecision::Dispatch(chosen)), Some((_, best))) = (told.decision(), best) {
                assert_eq!(chosen, best, "request {request}: {told:?}");
                scored += 1;
            }
        }
        assert!(scored > 15, "{name:?}: {scored}");
        assert!(log.find(300).is_none());
    }
}

#[test]
fn a_fallback_is_explained_by_its_class_and_what_the_builtin_did() {
    let host = pointsman_slots::host();
    let (tap, log) = DecisionLog::start(usize::MAX).unwrap();
    let mut traffic = pointsman_slots::traffic(PolicySlot::new(SlotKind::Route, tap, Arc::default()), 2, 1);
    let guard = Guard { faults: false, ..Guard::default() };
    drop(traffic.slots.route.swap_in(host.prepare(SlotKind::Route, &hostile("trap-on-fourth"), "").unwrap(), guard));
    traffic.run(8, 2);
    traffic.slots.route.flush();
    log.sync();
    let find = |digest| Some(hostile("trap-on-fourth")).filter(|artifact| artifact.digest() == digest);
    let told = explain(&host, &find, &log.find(3).unwrap()).unwrap().unwrap();
    assert_eq!(told.outcome.fault, Some(FaultClass::Trap));
    assert!(matches!(told.decision(), Some(RouteDecision::Dispatch(_))) && told.replaced.is_some());
}
