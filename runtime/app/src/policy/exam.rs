//! `pointsman policy test`: the crate's own tests natively, then the exam in WebAssembly.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use pointsman_policy::exam::{Finding, Property, Report, examine};
use pointsman_policy::{Artifact, SlotKind};
use serde_json::{Value, json};

use crate::config::policy_host;

/// Tests a policy, a crate or a component.
pub(super) fn test(policy: &Path, config: &str, histories: u64, as_json: bool) -> anyhow::Result<()> {
    let component = if policy.is_dir() {
        native(policy)?;
        pointsman_pack::build_policy(policy)?.component
    } else {
        fs::read(policy).with_context(|| format!("read {}", policy.display()))?
    };
    let (host, artifact) = (policy_host()?, Artifact::new(&component)?);
    let mut reports = Vec::new();
    for slot in artifact.slots() {
        reports.push((*slot, examine(&host, *slot, &artifact, config, histories)?));
    }
    if as_json {
        let slots = reports.iter().map(|(slot, report)| (slot.to_string(), as_value(*slot, report)));
        println!("{}", Value::Object(slots.collect()));
    } else {
        reports.iter().for_each(|(slot, report)| show(*slot, report));
    }
    match reports.iter().map(|(_, report)| report.findings.len()).sum() {
        0 => Ok(()),
        findings => bail!("{findings} properties do not hold"),
    }
}

/// Runs the crate's own tests; what they say goes to standard error.
fn native(dir: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Its output stands beside a report that may be JSON.
    command.current_dir(dir).args(["test", "--quiet"]).stdout(std::io::stderr());
    let status = command.status().context("run cargo test; is Rust installed and in PATH?")?;
    if !status.success() {
        bail!("the policy's own tests failed; see above");
    }
    Ok(())
}

fn found(report: &Report, property: Property) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.property == property)
}

fn as_value(slot: SlotKind, report: &Report) -> Value {
    let property = |property: Property| {
        let finding = found(report, property).map(|finding| &finding.detail);
        json!({ "property": property.to_string(), "finding": finding })
    };
    let properties: Vec<Value> = Property::of(slot).map(property).collect();
    let (histories, questions, fuel) = (report.histories, report.questions, report.fuel_max);
    json!({ "histories": histories, "questions": questions, "fuel_max": fuel, "properties": properties })
}

fn show(slot: SlotKind, report: &Report) {
    println!("{slot}:");
    for property in Property::of(slot) {
        match found(report, property) {
            None => println!("  ok    {property}"),
            Some(finding) => println!("  FAIL  {property}\n        {}", finding.detail),
        }
    }
    let (questions, histories) = (report.questions, report.histories);
    println!("  {questions} questions in {histories} histories; at most {} units of fuel each", report.fuel_max);
}
