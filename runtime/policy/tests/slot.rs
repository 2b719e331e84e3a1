//! The slot's state machine: swap, hand-over, rollback, eject, pause and resume, and what the operator is shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

mod guests;

use std::sync::{Arc, Mutex};

use guests::{ARMED, Guest};
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros};
use pointsman_engine::port::{Pick, RoutePolicy};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::limits::{LOG_LINES_BURST, PAUSE_DECISIONS_MIN, STRIKES_MAX};
use pointsman_policy::{Artifact, Candidate, NothingBefore, PolicyHost, RouteSlot, Status};

fn view() -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 8, busy: id, free_tokens: 1000, open: true, service: Micros(0) };
    Snapshot { epoch: 1, seq: 10, chains: (0..3).map(chain).collect(), queued: 0 }
}

fn ask(tenant: u32) -> Pick {
    let (now, deadline) = (Micros(5), Micros(0));
    Pick { seq: 10, now, rnd: 7, tenant, class: 0, prompt: 3, reserve: 9, deadline, session: 0, hints: 0 }
}

/// Always answers `chain`.
fn constant(chain: u32) -> Guest {
    Guest::default().pick(format!("(i64.const {chain})"))
}

fn candidate(host: &PolicyHost, guest: &Guest) -> Candidate {
    host.prepare(&Artifact::new(&guest.component()).unwrap(), "{}").unwrap()
}

/// What the engine does for one decision: a view if one is wanted, changes, then the question.
fn decide(slot: &mut RouteSlot, tenant: u32) -> Result<RouteDecision, Fault> {
    if slot.wants_snapshot() {
        slot.init(&view())?;
    } else {
        slot.apply(11, &[RouteEvent::Queued(0)])?;
    }
    slot.pick(&ask(tenant))
}

#[track_caller]
fn dispatches(slot: &mut RouteSlot, chain: u32) {
    assert_eq!(decide(slot, 0), Ok(RouteDecision::Dispatch(ChainId(chain))));
}

#[test]
fn is_sendable_so_that_candidates_are_made_elsewhere() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    send::<Candidate>();
    send::<RouteSlot>();
    send::<pointsman_policy::Retired>();
    share::<PolicyHost>();
}

#[test]
fn an_empty_slot_decides_natively_and_without_faults() {
    let mut slot = RouteSlot::new();
    dispatches(&mut slot, 0);
    let report = slot.report();
    assert_eq!((report.generation, report.status, report.active), (0, Status::Builtin, None));
    assert!(!report.can_roll_back && report.last_fault.is_none());
    assert_eq!(slot.rollback().err(), Some(NothingBefore));
    drop(slot.eject());
    assert_eq!(slot.report().generation, 0, "nothing to eject");
}

#[test]
fn swap_rollback_and_eject_change_who_decides() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    let first = candidate(&host, &constant(1));
    let digest = first.digest();
    drop(slot.swap_in(first));
    dispatches(&mut slot, 1);
    drop(slot.swap_in(candidate(&host, &constant(2))));
    dispatches(&mut slot, 2);
    let report = slot.report();
    assert_eq!((report.generation, report.status), (2, Status::Active));
    assert_eq!(report.previous.unwrap().digest, digest);

    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 1);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 2);
    drop(slot.eject());
    dispatches(&mut slot, 0);
    assert_eq!(slot.report().status, Status::Builtin);
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
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &constant(1))));
    let report = slot.report();
    assert!(report.can_roll_back && report.previous.is_none());
    drop(slot.rollback().unwrap());
    assert_eq!(slot.report().status, Status::Builtin);
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
fn saved_state_goes_to_the_first_init_of_the_successor_only() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &heir(1))));
    dispatches(&mut slot, 9);
    drop(slot.swap_in(candidate(&host, &heir(2))));
    dispatches(&mut slot, 1);
    slot.init(&view()).unwrap();
    dispatches(&mut slot, 9);
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 9);
}

#[test]
fn a_save_that_faults_does_not_hold_up_the_swap() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    for save in ["(unreachable)", "(loop (br 0)) (i32.const 128)", "(i32.const 0x7ffffff0)", "(i32.const 512)"] {
        // 512: a list of 128 KiB, over the limit on results, in a memory of 128 KiB.
        let huge = r#"(data (i32.const 512) "\01\00\00\00\00\00\00\00\10\00\00\00\03\00\00\00\07\00\00\00\00\00\00\00\00\00\00\00\00\00\02\00")"#;
        drop(slot.swap_in(candidate(&host, &constant(1).fields(huge).save(save))));
        dispatches(&mut slot, 1);
        drop(slot.swap_in(candidate(&host, &heir(3))));
        dispatches(&mut slot, 9);
    }
}

#[test]
fn a_view_is_wanted_again_whenever_somebody_else_decides() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    slot.init(&view()).unwrap();
    assert!(!slot.wants_snapshot());
    drop(slot.swap_in(candidate(&host, &constant(1))));
    assert!(slot.wants_snapshot());
    slot.init(&view()).unwrap();
    assert!(!slot.wants_snapshot());
    drop(slot.eject());
    assert!(slot.wants_snapshot(), "the builtin's view is out of date");
}

#[test]
fn three_faults_in_a_row_pause_the_policy_for_a_counted_while() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &constant(1).armed("(unreachable)"))));
    for _ in 0..STRIKES_MAX {
        assert_eq!(decide(&mut slot, ARMED).unwrap_err().class, FaultClass::Trap);
    }
    assert_eq!(slot.report().status, Status::Paused);
    for _ in 0..PAUSE_DECISIONS_MIN {
        assert!(!slot.wants_snapshot(), "nobody to give it to");
        assert_eq!(decide(&mut slot, 0).unwrap_err().class, FaultClass::Paused);
    }
    assert_eq!(slot.report().status, Status::Active);
    dispatches(&mut slot, 0);
    let report = slot.report();
    let count = |class| report.faults[FaultClass::ALL.iter().position(|c| *c == class).unwrap()];
    assert_eq!(count(FaultClass::Trap), u64::from(STRIKES_MAX));
    assert_eq!(count(FaultClass::Paused), u64::from(PAUSE_DECISIONS_MIN));
    assert_eq!(report.last_fault.unwrap().class, FaultClass::Trap, "a pause says nothing new");
    // The probe stood, so it takes three faults again.
    for _ in 0..STRIKES_MAX {
        assert_eq!(slot.report().status, Status::Active);
        assert_eq!(decide(&mut slot, ARMED).unwrap_err().class, FaultClass::Trap);
    }
    assert_eq!(slot.report().status, Status::Paused);
}

#[test]
fn refused_answers_are_strikes_but_keep_the_view() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &constant(7))));
    for _ in 0..STRIKES_MAX {
        dispatches(&mut slot, 7);
        slot.refused(&Fault::new(FaultClass::Invalid, "there is no chain 7"));
    }
    assert_eq!(slot.report().status, Status::Paused);
    assert_eq!(decide(&mut slot, 0).unwrap_err().class, FaultClass::Paused);
    assert!(!slot.wants_snapshot());
}

#[test]
fn a_paused_or_broken_policy_can_be_swapped_out_rolled_back_and_ejected() {
    let host = PolicyHost::new().unwrap();
    let broken = constant(1).armed("(unreachable)");
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &constant(2))));
    drop(slot.swap_in(candidate(&host, &broken)));
    (0..STRIKES_MAX).for_each(|_| assert!(decide(&mut slot, ARMED).is_err()));
    drop(slot.rollback().unwrap());
    dispatches(&mut slot, 2);
    assert_eq!(slot.report().faults, [0; FaultClass::ALL.len()], "faults belong to the active policy");
    assert!(slot.report().last_fault.is_some());
    drop(slot.swap_in(candidate(&host, &broken)));
    assert!(decide(&mut slot, ARMED).is_err());
    drop(slot.eject());
    dispatches(&mut slot, 0);
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
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &log)));
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
    let mut slot = RouteSlot::new();
    drop(slot.swap_in(candidate(&host, &constant(1).armed("(unreachable)"))));
    let lines = logged(|| {
        for round in 0..2000 {
            let _ = decide(&mut slot, if round % 2 == 0 { ARMED } else { 0 });
        }
    });
    assert!(lines.len() <= 64 + 2000 / 16 + 1, "{} lines", lines.len());
}
