//! Every policy that ships passes its exam; policies that break a rule are told which.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails by panicking")]

use pointsman_policy::SlotKind;
use pointsman_policy::exam::{Property, examine};
use pointsman_policy::limits::HOT_FUEL;
use pointsman_slots::{amount, hostile, natives, shipped};

#[test]
fn the_shipped_policies_pass() {
    let host = pointsman_slots::host();
    for (name, _) in natives::ALL {
        let report = examine(&host, SlotKind::Route, &shipped(name), "", amount(16)).unwrap();
        assert_eq!(report.findings, [], "{name}");
        assert!(report.questions > 300 && report.fuel_max < HOT_FUEL * 3 / 4, "{name}: {report:?}");
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
        ("counts-unknown", Property::IgnoresUnknownEvents, "kind 200"),
    ] {
        let report = examine(&host, SlotKind::Route, &hostile(name), "", 4).unwrap();
        let found = report.findings.iter().find(|finding| finding.property == property);
        assert!(found.is_some_and(|finding| finding.detail.contains(words)), "{name}: {report:?}");
    }
    assert!(examine(&host, SlotKind::Route, &hostile("trap-in-init"), "", 4).is_err());
}
