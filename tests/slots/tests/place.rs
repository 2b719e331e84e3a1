//! Placement policies: their plans can be carried out, the same in Wasm as natively; those that misbehave are stopped and named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use pointsman_engine::decision::FaultClass;
use pointsman_engine::placement::{check, synth};
use pointsman_policy::SlotKind;
use pointsman_policy::exam::examine;
use pointsman_policy::place::{Planner, Proposal};
use pointsman_slots::{amount, hostile, natives, shipped};

#[test]
fn every_placement_policy_plans_in_wasm_as_natively_and_what_can_be_carried_out() {
    let host = pointsman_slots::host();
    for (name, start) in natives::PLACES {
        let candidate = host.prepare(SlotKind::Place, &shipped(name), "").unwrap();
        let (mut planner, mut native, mut plans) = (Planner::new(candidate).unwrap(), start(), 0);
        for seed in 0..amount(300) {
            let scene = synth::scene(seed);
            let proposal = planner.propose(&scene).unwrap_or_else(|fault| panic!("{name}, scene {seed}: {fault}"));
            if let Proposal::Replace(plan) = &proposal {
                plans += 1;
                assert_eq!(check(&scene.model, &scene.fleet, plan), Ok(()), "{name}, scene {seed}");
            }
            assert_eq!(proposal, native(&scene), "{name}, scene {seed}");
        }
        assert!(plans > amount(300) / 4, "{name}: {plans} plans");
    }
}

#[test]
fn the_shipped_placement_policies_pass_their_exam() {
    let host = pointsman_slots::host();
    for (name, _) in natives::PLACES {
        let report = examine(&host, SlotKind::Place, &shipped(name), "", amount(100)).unwrap();
        assert_eq!(report.findings, [], "{name}");
    }
}

#[test]
fn a_placement_policy_that_misbehaves_is_stopped_and_named() {
    let host = pointsman_slots::host();
    for (name, class, words) in [
        ("place-trap", FaultClass::Trap, "no plan today"),
        ("place-loop", FaultClass::Deadline, "propose"),
        ("place-memory", FaultClass::Memory, "memory may not grow to 268"),
        ("place-forge", FaultClass::Invalid, "server 4294967295"),
        ("place-greedy", FaultClass::Invalid, "server"),
    ] {
        let mut planner = Planner::new(host.prepare(SlotKind::Place, &hostile(name), "").unwrap()).unwrap();
        let scene = synth::scene(4);
        assert_eq!(planner.propose(&scene), Ok(Proposal::Keep), "{name}");
        let fault = planner.propose(&scene).unwrap_err();
        // Whether fuel or the clock ends a loop depends on the machine.
        let class = if fault.class == FaultClass::Fuel && name == "place-loop" { FaultClass::Fuel } else { class };
        assert!(fault.class == class && fault.detail.contains(words), "{name}: {fault}");
    }
}
