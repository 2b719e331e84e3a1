//! The hostile guests of `tests/security`, built with the SDK as a policy author would build them: refused at the door, or
//! faulting with their class on a live call, after which the slot goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use std::path::Path;

use pointsman_engine::decision::{FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, RoutePolicy};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::{Artifact, Candidate, Guard, PolicyHost, PolicySlot, RefuseReason, SlotKind, Stage};

fn prepare(name: &str) -> Result<Candidate, RefuseReason> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/security/guests/dist/{name}.wasm"));
    let upload = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    PolicyHost::new().unwrap().prepare(SlotKind::Route, &Artifact::new(&upload)?, "")
}

fn view() -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 8, busy: 0, free_tokens: 1000, open: true, service: Micros(0) };
    Snapshot { epoch: 0, seq: 0, chains: (0..2).map(chain).collect(), queued: 0 }
}

fn pick(slot: &mut PolicySlot) -> Result<RouteDecision, pointsman_engine::decision::Fault> {
    if slot.wants_snapshot() {
        slot.init(&view())?;
    } else {
        slot.apply(1, &[RouteEvent::Queued(0)])?;
    }
    let (now, deadline) = (Micros(5), Micros(0));
    let (id, session, hints) = (RequestId(1), 0, 0);
    let ask = Pick { id, seq: 1, now, rnd: 7, tenant: 0, class: 0, prompt: 3, reserve: 9, deadline, session, hints };
    slot.pick(&ask, &[])
}

#[test]
fn refused_at_the_door() {
    for (name, stage, words) in [
        ("forbidden-import", Stage::Verify, "nothing else"),
        ("no-route", Stage::Verify, "route@0.1.0"),
        ("loop-in-start", Stage::Instantiate, "fuel"),
        ("huge-name", Stage::Describe, "out of bounds"),
        ("init-error", Stage::Init, "no configuration is good enough"),
        ("loop-in-init", Stage::Init, "fuel"),
        ("memory-in-init", Stage::Init, "memory may not grow"),
        ("trap-in-init", Stage::Init, "not today"),
        ("bad-word", Stage::Trial, "unknown kind"),
        ("fill", Stage::Trial, "fuel"),
        ("log-flood", Stage::Trial, "logs more than its fuel pays for"),
    ] {
        let refusal = prepare(name).unwrap_err();
        assert_eq!(refusal.stage, stage, "{name}: {refusal}");
        assert!(refusal.reason.contains(words), "{name}: `{words}` is not in: {refusal}");
    }
}

#[test]
fn every_fourth_pick_faults_and_the_others_are_its_own() {
    for (name, class) in [
        ("trap-on-fourth", FaultClass::Trap),
        ("loop-on-fourth", FaultClass::Fuel),
        ("memory-on-fourth", FaultClass::Memory),
        ("recurse-on-fourth", FaultClass::Stack),
    ] {
        let mut slot = PolicySlot::default();
        drop(slot.swap_in(prepare(name).unwrap(), Guard::default()));
        for round in 1..=12 {
            let answer = pick(&mut slot);
            if round % 4 == 0 {
                let fault = answer.unwrap_err();
                assert_eq!(fault.class, class, "{name}: {fault}");
            } else {
                assert_eq!(answer, Ok(RouteDecision::Dispatch(ChainId(0))), "{name}, pick {round}");
            }
        }
        let at = FaultClass::ALL.iter().position(|c| *c == class).unwrap();
        assert_eq!(slot.report().faults[at], 3, "{name}");
    }
}

#[test]
fn a_huge_state_is_left_behind() {
    let mut slot = PolicySlot::default();
    drop(slot.swap_in(prepare("huge-list").unwrap(), Guard::default()));
    assert!(pick(&mut slot).is_ok());
    drop(slot.swap_in(prepare("trap-on-fourth").unwrap(), Guard::default()));
    assert!(pick(&mut slot).is_ok());
}

#[test]
fn bad_but_valid_choices_are_the_guards_business() {
    for name in ["always-queue", "always-reject", "forged-chain"] {
        let mut slot = PolicySlot::default();
        drop(slot.swap_in(prepare(name).unwrap(), Guard::default()));
        assert!(pick(&mut slot).is_ok(), "{name}");
    }
}
