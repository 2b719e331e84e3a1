//! Every policy that ships passes its exam; policies that break a rule are told which.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails by panicking")]

use pointsman_policy::SlotKind;
use pointsman_policy::exam::{Property, examine};
use pointsman_policy::limits::{FUEL_PER_WORD, HOT_FUEL};
use pointsman_slots::{amount, hostile, natives, shipped};

#[test]
fn the_shipped_policies_pass() {
    let host = pointsman_slots::host();
    for (name, slot) in natives::all() {
        let report = examine(&host, slot, &shipped(name), "", amount(16)).unwrap();
        assert_eq!(report.findings, [], "{name}");
        // What a full window adds to the budget.
        let words = slot.window().map_or(0, |kind| kind.entries_max() * kind.words());
        let budget = HOT_FUEL + FUEL_PER_WORD * words as u64;
        assert!(report.questions >= 16 * 16 && report.fuel_max < budget * 3 / 4, "{name}: {report:?}");
    }
}

#[test]
fn each_broken_rule_is_named() {
    let host = pointsman_slots::host();
    for (name, property, words) in [
        ("trap-on-fourth", Property::NeverFaults, "the fourth pick"),
        ("loop-in-save", Property::SurvivesRestarts, "save: fuel"),
        ("forged-chain", Property::AnswersFit, "chain 4000000000"),
        ("always-queue", Property::ServesEverybody, "starved"),
        ("window-loop", Property::NeverFaults, "step: fuel"),
        ("window-hold", Property::AnswersFit, "held while nothing is in flight"),
        ("counts-unknown", Property::IgnoresUnknownEvents, "kind 200"),
    ] {
        let slot = if name.starts_with("window") { SlotKind::Batch } else { SlotKind::Route };
        let report = examine(&host, slot, &hostile(name), "", 4).unwrap();
        let found = report.findings.iter().find(|finding| finding.property == property);
        assert!(found.is_some_and(|finding| finding.detail.contains(words)), "{name}: {report:?}");
    }
    assert!(examine(&host, SlotKind::Route, &hostile("trap-in-init"), "", 4).is_err());
}
