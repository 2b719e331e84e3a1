//! Every limit on a running policy, each met by a guest that exceeds it on a live call: the fault has its class, the call ends
//! soon, the slot comes back with a fresh instance, and the builtin can take over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

mod guests;

use std::time::{Duration, Instant};

use guests::{ARMED, Guest};
use pointsman_engine::decision::{FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::{Artifact, Guard, PolicyHost, PolicySlot, SlotKind};

fn view(chains: u32) -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 8, busy: 1, free_tokens: 1000, open: true, service: Micros(0) };
    Snapshot { epoch: 1, seq: 10, chains: (0..chains).map(chain).collect(), queued: 0 }
}

fn ask(tenant: u32) -> Pick {
    let (now, deadline) = (Micros(5), Micros(0));
    let (id, session, hints) = (RequestId(1), 0, 0);
    Pick { id, seq: 10, now, rnd: 7, tenant, class: 0, prompt: 3, reserve: 9, deadline, session, hints }
}

fn slot_with(guest: &Guest) -> PolicySlot {
    let candidate =
        PolicyHost::new().unwrap().prepare(SlotKind::Route, &Artifact::new(&guest.component()).unwrap(), "").unwrap();
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(candidate, Guard::default()));
    assert!(slot.wants_snapshot());
    slot.init(&view(3)).unwrap();
    slot
}

/// One armed request; then everything must work again.
#[track_caller]
fn faults_and_recovers(guest: &Guest, class: FaultClass, words: &str) {
    let mut slot = slot_with(guest);
    assert_eq!(slot.pick(&ask(0), &[]), Ok(RouteDecision::Dispatch(ChainId(0))));
    let start = Instant::now();
    let fault = slot.pick(&ask(ARMED), &[]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
    assert_eq!(fault.class, class, "{fault}");
    assert!(fault.detail.contains(words) && !fault.detail.contains('\n'), "`{words}` is not in: {fault}");
    assert!(slot.wants_snapshot(), "a faulted instance is gone, and its view with it");
    slot.init(&view(3)).unwrap();
    slot.apply(11, &[RouteEvent::Queued(1)]).unwrap();
    assert_eq!(slot.pick(&ask(0), &[]), Ok(RouteDecision::Dispatch(ChainId(0))));
    let report = slot.report();
    assert_eq!(report.faults.iter().sum::<u64>(), 1);
    assert_eq!(report.last_fault.unwrap().class, class);
    drop(slot.eject());
    slot.init(&view(3)).unwrap();
    assert_eq!(slot.pick(&ask(ARMED), &[]), Ok(RouteDecision::Dispatch(ChainId(0))), "the builtin decides");
}

#[test]
fn a_trap() {
    faults_and_recovers(
        &Guest::default().armed("(unreachable)"),
        FaultClass::Trap,
        "pick: wasm trap: wasm `unreachable`",
    );
    let division = "(drop (i32.div_u (i32.const 1) (i32.const 0)))";
    faults_and_recovers(&Guest::default().armed(division), FaultClass::Trap, "divide by zero");
    let wild = "(drop (i32.load (i32.const 0xfffffff0)))";
    faults_and_recovers(&Guest::default().armed(wild), FaultClass::Trap, "out of bounds");
}

#[test]
fn a_panic_with_its_message() {
    let panic = "(call $log (i32.const 3) (i32.const 32) (i32.const 17)) (unreachable)";
    faults_and_recovers(&Guest::default().armed(panic), FaultClass::Trap, "last words: help, I fell over");
}

#[test]
fn an_endless_loop() {
    faults_and_recovers(&Guest::default().armed("(loop (br 0))"), FaultClass::Fuel, "fuel");
}

#[test]
fn bulk_memory_work_is_paid_for_by_its_size() {
    let fill = "(loop (memory.fill (i32.const 0) (i32.const 1) (i32.const 131072)) (br 0))";
    faults_and_recovers(&Guest::default().armed(fill), FaultClass::Fuel, "fuel");
}

#[test]
fn memory_growth() {
    let grow = "(loop (drop (memory.grow (i32.const 16))) (br 0))";
    faults_and_recovers(&Guest::default().armed(grow), FaultClass::Memory, "memory may not grow to 16908288 bytes");
}

#[test]
fn table_growth() {
    let guest = Guest::default().fields("(table $t 1 funcref)");
    let grow = "(drop (table.grow $t (ref.null func) (i32.const 10000)))";
    faults_and_recovers(&guest.armed(grow), FaultClass::Memory, "table may not grow to 10001 elements");
}

#[test]
fn endless_recursion() {
    let guest = Guest::default().fields(
        "(func $deep (param i64) (call $deep (i64.add (local.get 0) (i64.const 1))) (drop (i64.ctz (local.get 0))))",
    );
    faults_and_recovers(&guest.armed("(call $deep (i64.const 0))"), FaultClass::Stack, "stack");
}

#[test]
fn a_log_message_over_the_result_limit() {
    let log = "(call $log (i32.const 1) (i32.const 0) (i32.const 65537))";
    faults_and_recovers(&Guest::default().armed(log), FaultClass::Oversize, "too much data");
}

#[test]
fn a_flood_of_log_lines_in_one_call() {
    let flood = "(loop (call $log (i32.const 1) (i32.const 32) (i32.const 17)) (br 0))";
    faults_and_recovers(&Guest::default().armed(flood), FaultClass::Oversize, "logs more than its fuel pays for");
}

#[test]
fn a_log_message_outside_memory_or_not_text() {
    let outside = "(call $log (i32.const 1) (i32.const 131071) (i32.const 2))";
    faults_and_recovers(&Guest::default().armed(outside), FaultClass::Trap, "out of bounds");
    let bytes = r#"(data (i32.const 512) "\ff\fe")"#;
    let bytes = Guest::default().fields(bytes).armed("(call $log (i32.const 1) (i32.const 512) (i32.const 2))");
    faults_and_recovers(&bytes, FaultClass::Trap, "utf-8");
    let level = "(call $log (i32.const 9) (i32.const 32) (i32.const 2))";
    faults_and_recovers(&Guest::default().armed(level), FaultClass::Trap, "discriminant");
}

#[test]
fn answers_that_do_not_decode() {
    let kind = Guest::default().pick(format!(
        "(i64.mul (i64.extend_i32_u (i32.eq (local.get $tenant) (i32.const {ARMED}))) (i64.const 0x7000000000000000))"
    ));
    faults_and_recovers(&kind, FaultClass::Invalid, "unknown kind 7");
}

#[test]
fn events_that_trap_leave_no_half_updated_view() {
    // Counts the words that it was told of, and traps in the middle of the second half of them.
    let guest = Guest::default()
        .fields("(global $seen (mut i32) (i32.const 0))")
        .apply("(global.set $seen (i32.add (global.get $seen) (local.get $len))) (if (i32.eq (local.get $len) (i32.const 6)) (then (unreachable)))")
        .pick("(i64.extend_i32_u (global.get $seen))");
    let mut slot = slot_with(&guest);
    slot.apply(11, &[RouteEvent::Busy(ChainId(0), 2)]).unwrap();
    assert_eq!(slot.pick(&ask(0), &[]), Ok(RouteDecision::Dispatch(ChainId(2))));
    let fault = slot.apply(14, &[RouteEvent::Busy(ChainId(1), 2); 3]).unwrap_err();
    assert!(fault.class == FaultClass::Trap && fault.detail.starts_with("apply:"), "{fault}");
    assert!(slot.wants_snapshot());
    assert_eq!(slot.pick(&ask(0), &[]).unwrap_err().class, FaultClass::Init, "not asked without a view");
    slot.init(&view(3)).unwrap();
    assert_eq!(slot.pick(&ask(0), &[]), Ok(RouteDecision::Dispatch(ChainId(0))), "a fresh instance has seen nothing");
}

#[test]
fn pulled_indices_are_within_the_window() {
    let mut slot = slot_with(&Guest::default().pull("(local.get $chain)"));
    let waiting = |id| Waiting { id: RequestId(id), tenant: 1, class: 2, prompt: 3, reserve: 4, waited: Micros(5) };
    let window = [waiting(1), waiting(2)];
    let pull = |answer| Pull { seq: 10, now: Micros(1), rnd: 0, chain: ChainId(answer) };
    assert_eq!(slot.pull(&pull(1), &window), Ok(Some(1)));
    assert_eq!(slot.pull(&pull(u32::MAX), &window), Ok(None));
    assert_eq!(slot.pull(&pull(2), &window).unwrap_err().class, FaultClass::Invalid);
}

#[test]
fn an_init_that_fails_on_the_live_view_only() {
    let guest = Guest::default()
        .init("(if (i32.eq (local.get $chains-len) (i32.const 512)) (then (unreachable))) (i32.const 96)");
    let mut slot = slot_with(&guest);
    let fault = slot.init(&view(512)).unwrap_err();
    assert!(fault.class == FaultClass::Trap && fault.detail.starts_with("init:"), "{fault}");
    assert!(slot.wants_snapshot());
    slot.init(&view(511)).unwrap();
    assert!(slot.pick(&ask(0), &[]).is_ok());
}

#[test]
fn the_largest_view_and_batch_fit_the_budgets() {
    // Touches every word that it is given, as a policy would.
    let sum = "(loop $next (local.set $len (i32.sub (local.get $len) (i32.const 1))) \
               (drop (i64.load (i32.add (local.get $words) (i32.shl (local.get $len) (i32.const 3))))) \
               (br_if $next (local.get $len)))";
    let guest = Guest::default().apply(sum).pull(format!("{sum} (i32.const 0)"));
    let mut slot = slot_with(&guest);
    slot.init(&view(512)).unwrap();
    slot.apply(600, &[RouteEvent::Busy(ChainId(511), 1); 2048]).unwrap();
    let waiting = Waiting { id: RequestId(1), tenant: 1, class: 2, prompt: 3, reserve: 4, waited: Micros(5) };
    slot.pull(&Pull { seq: 600, now: Micros(1), rnd: 0, chain: ChainId(0) }, &[waiting; 64]).unwrap();
}
