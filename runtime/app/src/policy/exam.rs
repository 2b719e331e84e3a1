//! `pointsman policy test`: the crate's own tests natively, then the exam in WebAssembly.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use pointsman_policy::Artifact;
use pointsman_policy::exam::{Property, Report, examine};
use serde_json::json;

use crate::config::policy_host;

/// Tests a policy, a crate or a component.
pub(super) fn test(policy: &Path, config: &str, histories: u64, as_json: bool) -> anyhow::Result<()> {
    let component = if policy.is_dir() {
        native(policy)?;
        pointsman_pack::build_policy(policy)?.component
    } else {
        fs::read(policy).with_context(|| format!("read {}", policy.display()))?
    };
    let report = examine(&policy_host()?, &Artifact::new(&component)?, config, histories)?;
    show(&report, as_json);
    match report.findings.as_slice() {
        [] => Ok(()),
        findings => bail!("{} of {} properties do not hold", findings.len(), Property::ALL.len()),
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

fn show(report: &Report, as_json: bool) {
    let found = |property| report.findings.iter().find(|finding| finding.property == property);
    if as_json {
        let properties: Vec<_> = Property::ALL
            .into_iter()
            .map(
                |property| json!({ "property": property.to_string(), "finding": found(property).map(|it| &it.detail) }),
            )
            .collect();
        let (histories, questions, fuel) = (report.histories, report.questions, report.fuel_max);
        println!(
            "{}",
            json!({ "histories": histories, "questions": questions, "fuel_max": fuel, "properties": properties })
        );
        return;
    }
    for property in Property::ALL {
        match found(property) {
            None => println!("ok    {property}"),
            Some(finding) => println!("FAIL  {property}\n      {}", finding.detail),
        }
    }
    let (questions, histories) = (report.questions, report.histories);
    println!("{questions} questions in {histories} histories; at most {} units of fuel each", report.fuel_max);
}
