//! The slot's state machine: swap, hand-over, rollback, eject, pause and resume, and what the operator is shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

mod guests;

use std::sync::{Arc, Mutex};

use guests::{ARMED, Guest};
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, RoutePolicy};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::limits::{LOG_LINES_BURST, STRIKES_MAX};
use pointsman_policy::{Artifact, Candidate, Guard, NotNow, PolicyHost, PolicySlot, SlotKind};

fn view() -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 8, busy: id, free_tokens: 1000, open: true, service: Micros(0) };
    Snapshot { epoch: 1, seq: 10, chains: (0..3).map(chain).collect(), queued: 0 }
}

fn ask(tenant: u32) -> Pick {
    let (now, deadline) = (Micros(5), Micros(0));
    let (id, session, hints) = (RequestId(1), 0, 0);
    Pick { id, seq: 10, now, rnd: 7, tenant, class: 0, prompt: 3, reserve: 9, deadline, session, hints }
}

/// Always answers `chain`.
fn constant(chain: u32) -> Guest {
    Guest::default().pick(format!("(i64.const {chain})"))
}

fn candidate(host: &PolicyHost, guest: &Guest) -> Candidate {
    host.prepare(SlotKind::Route, &Artifact::new(&guest.component()).unwrap(), "{}").unwrap()
}

/// What the engine does for one decision: a view if one is wanted, changes, then the question.
fn decide(slot: &mut PolicySlot, tenant: u32) -> Result<RouteDecision, Fault> {
    if slot.wants_snapshot() {
        slot.init(&view())?;
    } else {
        slot.apply(11, &[RouteEvent::Queued(0)])?;
    }
    slot.pick(&ask(tenant), &[])
}

#[track_caller]
fn dispatches(slot: &mut PolicySlot, chain: u32) {
    assert_eq!(decide(slot, 0), Ok(RouteDecision::Dispatch(ChainId(chain))));
}

#[test]
fn is_sendable_so_that_candidates_are_made_elsewhere() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    send::<Candidate>();
    send::<PolicySlot>();
    send::<pointsman_policy::Retired>();
    share::<PolicyHost>();
}

#[test]
fn an_empty_slot_decides_natively_and_without_faults() {
    let mut slot = PolicySlot::default();
    dispatches(&mut slot, 0);
    let report = slot.report();
    assert_eq!((report.generation, report.active), (0, None));
    assert!(!report.can_roll_back && report.last_fault.is_none());
    assert_eq!(slot.rollback().err(), Some(NotNow::NothingBefore));
    drop(slot.eject());
    assert_eq!(slot.report().generation, 0, "nothing to eject");
}

#[test]
fn swap_rollback_and_eject_change_who_decides() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    let first = candidate(&host, &constant(1));
    let digest = first.digest();
    drop(slot.swap_in(first, Guard::default()));
    dispatches(&mut slot, 1);
    drop(slot.swap_in(candidate(&host, &constant(2)), Guard::default()));
    dispatches(&mut slot, 2);
    let report = slot.report();
    assert_eq!(report.generation, 2);
    assert_eq!(report.previous.unwrap().digest, digest);

    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 1);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 2);
    drop(slot.eject());
    dispatches(&mut slot, 0);
    assert_eq!(slot.report().active, None);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 2);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 0);
    let report = slot.report();
    assert_eq!((report.generation, report.can_roll_back), (7, true));
}

#[test]
fn the_first_rollback_returns_to_the_builtin() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(candidate(&host, &constant(1)), Guard::default()));
    let report = slot.report();
    assert!(report.can_roll_back && report.previous.is_none());
    drop(slot.rollback().unwrap());
    assert_eq!(slot.report().active, None);
    dispatches(&mut slot, 0);
}

/// Saves `byte`, and answers the byte that it was given, or 9 without one.
fn heir(byte: u8) -> Guest {
    Guest::default()
        .fields(format!(
            r#"(global $got (mut i64) (i64.const 9))
               (data (i32.const 512) "\01\00\00\00\00\00\00\00\10\00\00\00\03\00\00\00\07\00\00\00\00\00\00\00\40\02\00\00\01\00\00\00")
               (data (i32.const 576) "\{byte:02x}")"#
        ))
        .init("(if (local.get $previous) (then (global.set $got (i64.load8_u (local.get $bytes))))) (i32.const 96)")
        .save("(i32.const 512)")
        .pick("(global.get $got)")
}

#[test]
fn saved_state_goes_to_the_successor_and_then_from_instance_to_instance() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(candidate(&host, &heir(1)), Guard::default()));
    dispatches(&mut slot, 9);
    drop(slot.swap_in(candidate(&host, &heir(2)), Guard::default()));
    dispatches(&mut slot, 1);
    slot.start_afresh();
    slot.init(&view()).unwrap();
    dispatches(&mut slot, 2);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 9);
}

#[test]
fn a_save_that_faults_does_not_hold_up_the_swap() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    for save in ["(unreachable)", "(loop (br 0)) (i32.const 128)", "(i32.const 0x7ffffff0)", "(i32.const 512)"] {
        // 512: a list of 128 KiB, over the limit on results, in a memory of 128 KiB.
        let huge = r#"(data (i32.const 512) "\01\00\00\00\00\00\00\00\10\00\00\00\03\00\00\00\07\00\00\00\00\00\00\00\00\00\00\00\00\00\02\00")"#;
        drop(slot.swap_in(candidate(&host, &constant(1).fields(huge).save(save)), Guard::default()));
        dispatches(&mut slot, 1);
        drop(slot.swap_in(candidate(&host, &heir(3)), Guard::default()));
        dispatches(&mut slot, 9);
    }
}

#[test]
fn a_view_is_wanted_again_whenever_somebody_else_decides() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    slot.init(&view()).unwrap();
    assert!(!slot.wants_snapshot());
    drop(slot.swap_in(candidate(&host, &constant(1)), Guard::default()));
    assert!(slot.wants_snapshot());
    slot.init(&view()).unwrap();
    assert!(!slot.wants_snapshot());
    drop(slot.eject());
    assert!(slot.wants_snapshot(), "the builtin's view is out of date");
}

/// A slot with `below` under `above`, and the quarantine that it fills.
fn stacked(host: &PolicyHost, below: &Guest, above: &Guest, guard: Guard) -> PolicySlot {
    let mut slot = PolicySlot::new(SlotKind::Route, pointsman_policy::Tap::default(), Arc::clone(host.quarantine()));
    drop(slot.swap_in(candidate(host, below), Guard::default()));
    drop(slot.swap_in(candidate(host, above), guard));
    slot
}

#[test]
fn a_policy_that_faults_too_often_is_taken_out_and_remembered() {
    let host = PolicyHost::new().unwrap();
    let broken = constant(1).armed("(unreachable)");
    let mut slot = stacked(&host, &constant(2), &broken, Guard::default());
    let digest = slot.report().active.unwrap().digest;
    for _ in 0..STRIKES_MAX {
        assert_eq!(slot.report().active.unwrap().digest, digest);
        assert_eq!(decide(&mut slot, ARMED).unwrap_err().class, FaultClass::Trap);
    }
    dispatches(&mut slot, 2);
    let report = slot.report();
    assert_eq!((report.generation, report.can_roll_back), (3, false), "nobody brings it back by mistake");
    assert_eq!(report.faults, [0; FaultClass::ALL.len()], "faults belong to the active policy");
    assert_eq!(report.last_fault.unwrap().class, FaultClass::Trap);

    let notices = slot.take_notices();
    assert_eq!(notices.len(), 1);
    assert!(notices[0].digest == digest && notices[0].reason.contains("trap") && !notices[0].promoted);
    let again = host.prepare(SlotKind::Route, &Artifact::new(&broken.component()).unwrap(), "").unwrap_err();
    assert_eq!(again.stage, pointsman_policy::Stage::Quarantine, "{again}");
    assert!(host.quarantine().clear(digest));
    drop(slot.swap_in(candidate(&host, &broken), Guard::default()));
}

#[test]
fn refused_answers_count_but_keep_the_view() {
    let host = PolicyHost::new().unwrap();
    let mut slot = stacked(&host, &constant(2), &constant(7), Guard::default());
    for strike in 1..=STRIKES_MAX {
        dispatches(&mut slot, 7);
        slot.refused(&Fault::new(FaultClass::Invalid, "there is no chain 7"));
        assert_eq!(slot.wants_snapshot(), strike == STRIKES_MAX);
    }
    dispatches(&mut slot, 2);
}

#[test]
fn without_a_guard_a_policy_may_fault_for_ever() {
    let host = PolicyHost::new().unwrap();
    let guard = Guard { faults: false, ..Guard::default() };
    let mut slot = stacked(&host, &constant(2), &constant(1).armed("(unreachable)"), guard);
    for _ in 0..100 {
        assert_eq!(decide(&mut slot, ARMED).unwrap_err().class, FaultClass::Trap);
    }
    dispatches(&mut slot, 0);
    slot.stalled(RequestId(1));
    dispatches(&mut slot, 0);
    assert_eq!(slot.report().faults.iter().sum::<u64>(), 101);
}

#[test]
fn one_that_lets_requests_starve_is_taken_out_at_once() {
    let host = PolicyHost::new().unwrap();
    let mut slot = stacked(&host, &constant(2), &constant(1), Guard::default());
    dispatches(&mut slot, 1);
    slot.stalled(RequestId(9));
    dispatches(&mut slot, 2);
    assert!(slot.take_notices()[0].reason.contains("request 9 fitted"));
    assert_eq!(slot.report().last_fault.unwrap().class, FaultClass::Stall);
}

#[test]
fn a_challenger_decides_its_share_and_can_be_promoted_or_sent_off() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    assert_eq!(slot.promote().err(), Some(NotNow::NoChallenger));
    drop(slot.swap_in(candidate(&host, &heir(2)), Guard::default()));
    let mut ids = 0..;
    let mut share = |slot: &mut PolicySlot| {
        let mut chains = [0; 10];
        for id in ids.by_ref().take(1_000) {
            if slot.wants_snapshot() {
                slot.init(&view()).unwrap();
            }
            let ask = Pick { id: RequestId(id), ..ask(0) };
            let Ok(RouteDecision::Dispatch(chain)) = slot.pick(&ask, &[]) else { panic!("a chain") };
            assert_eq!(slot.is_challengers(RequestId(id)), chain == ChainId(1));
            chains[chain.0 as usize] += 1;
        }
        chains[1]
    };
    drop(slot.challenge(candidate(&host, &constant(1)), 2_500, Guard::default()).unwrap());
    assert!((200..300).contains(&share(&mut slot)));
    let trial = slot.report().challenger.unwrap();
    assert_eq!((trial.share, slot.report().generation), (2_500, 2));

    drop(slot.rollback().unwrap());
    assert_eq!((share(&mut slot), slot.report().challenger), (0, None));
    drop(slot.challenge(candidate(&host, &constant(1)), 10_000, Guard::default()).unwrap());
    assert_eq!(share(&mut slot), 1_000);
    drop(slot.promote().unwrap());
    dispatches(&mut slot, 1);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 9);
}

#[test]
fn a_challenger_that_faults_leaves_the_one_in_charge_alone() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(candidate(&host, &constant(2)), Guard::default()));
    drop(slot.challenge(candidate(&host, &constant(1).armed("(unreachable)")), 10_000, Guard::default()).unwrap());
    for _ in 0..STRIKES_MAX {
        assert_eq!(decide(&mut slot, ARMED).unwrap_err().class, FaultClass::Trap);
    }
    dispatches(&mut slot, 2);
    assert_eq!((slot.report().challenger, slot.report().faults.iter().sum::<u64>()), (None, 0));
}

#[test]
fn a_slow_challenger_is_sent_off_and_a_good_one_promoted() {
    use pointsman_policy::slo::{Sample, Slo};
    let host = PolicyHost::new().unwrap();
    for (factor, promoted) in [(3, false), (1, true)] {
        let mut slot = PolicySlot::new(SlotKind::Route, pointsman_policy::Tap::default(), Arc::default());
        drop(slot.swap_in(candidate(&host, &constant(2)), Guard::default()));
        let guard = Guard { promote: true, slo: Slo { requests: 300, ..Slo::default() }, ..Guard::default() };
        drop(slot.challenge(candidate(&host, &constant(1)), 5_000, guard).unwrap());
        for id in 0..1_000 {
            let slower = if slot.is_challengers(RequestId(id)) { factor } else { 1 };
            let ttft_micros = (1_000 + 37 * (id % 11)) * slower;
            slot.observe(RequestId(id), true, Sample { ttft_micros, tpot_micros: None });
        }
        let notices = slot.take_notices();
        assert_eq!(notices.len(), 1, "{factor}");
        assert_eq!(notices[0].promoted, promoted, "{}", notices[0].reason);
        dispatches(&mut slot, if promoted { 1 } else { 2 });
    }
}

#[test]
fn a_dump_shows_the_state_and_a_bad_one_costs_the_instance() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    assert!(slot.dump().is_none(), "the builtin has no state");
    let text = r#"(data (i32.const 512) "\08\02\00\00\02\00\00\00{}")"#;
    drop(slot.swap_in(candidate(&host, &constant(1).fields(text).dump("(i32.const 512)")), Guard::default()));
    assert!(slot.dump().is_none(), "it has no view yet");
    dispatches(&mut slot, 1);
    assert_eq!(slot.dump().unwrap().unwrap(), "{}");
    drop(slot.swap_in(candidate(&host, &constant(1).dump("(unreachable)")), Guard::default()));
    dispatches(&mut slot, 1);
    assert_eq!(slot.dump().unwrap().unwrap_err().class, FaultClass::Trap);
    dispatches(&mut slot, 1);
}

/// Collects what is logged while `f` runs: policy and message.
fn logged(f: impl FnOnce()) -> Vec<String> {
    struct Collect(Arc<Mutex<Vec<String>>>);
    impl tracing::Subscriber for Collect {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            struct Line(String);
            impl tracing::field::Visit for Line {
                fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                    self.0 += &format!("{}={value:?} ", field.name());
                }
            }
            if event.metadata().target().starts_with("pointsman_policy") {
                let mut line = Line(String::new());
                event.record(&mut line);
                self.0.lock().unwrap().push(line.0);
            }
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }
    let lines = Arc::default();
    tracing::subscriber::with_default(Collect(Arc::clone(&lines)), f);
    let lines = lines.lock().unwrap();
    lines.clone()
}

#[test]
fn log_lines_carry_the_name_are_escaped_and_are_rationed_across_instances() {
    let host = PolicyHost::new().unwrap();
    let log = r#"(data (i32.const 512) "a\1b[31mb")"#;
    let log = Guest::default().fields(log).armed("(call $log (i32.const 1) (i32.const 512) (i32.const 7))");
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(candidate(&host, &log), Guard::default()));
    let burst = LOG_LINES_BURST as usize;
    let lines = logged(|| {
        for round in 0..10 * burst {
            decide(&mut slot, ARMED).unwrap();
            if round % 10 == 0 {
                // A fresh instance has no fresh quota.
                slot.init(&view()).unwrap();
            }
        }
    });
    assert!(lines[0].contains("policy=\"wat\"") && lines[0].contains("a\\u{1b}[31mb"), "{}", lines[0]);
    let refilled = 10 * burst / 16;
    assert!((burst..=burst + refilled + 1).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines.iter().any(|line| line.contains("dropped=15")), "says how many were dropped: {lines:?}");
}

#[test]
fn a_policy_that_dies_over_and_over_does_not_flood_the_log() {
    let host = PolicyHost::new().unwrap();
    let mut slot = PolicySlot::default();
    let guard = Guard { faults: false, ..Guard::default() };
    drop(slot.swap_in(candidate(&host, &constant(1).armed("(unreachable)")), guard));
    let lines = logged(|| {
        for round in 0..2000 {
            let _ = decide(&mut slot, if round % 2 == 0 { ARMED } else { 0 });
        }
    });
    assert!(lines.len() <= 64 + 2000 / 16 + 1, "{} lines", lines.len());
}
