//! What needs no server: build, check, replay.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pointsman_api::service::PolicySource;
use pointsman_engine::decision::FaultClass;
use pointsman_policy::record::LogFile;
use pointsman_policy::record::frame::Body;
use pointsman_policy::replay::rival::RivalReport;
use pointsman_policy::replay::{Replay, ReplayReport};
use pointsman_policy::{Artifact, Descriptor, Digest};
use serde_json::json;

use crate::config::policy_host;
use crate::policies::{Registry, source};

pub(super) fn build(dir: &Path, output: &Path, as_json: bool) -> anyhow::Result<()> {
    let built = pointsman_pack::build_policy(dir)?;
    fs::write(output, &built.component).with_context(|| format!("write {}", output.display()))?;
    let digest = Digest::of(&built.component).to_string();
    if as_json {
        println!("{}", json!({ "path": output, "bytes": built.component.len(), "digest": digest }));
    } else {
        println!("{}: {} bytes, {digest}", output.display(), built.component.len());
    }
    Ok(())
}

pub(super) fn check(file: &Path, config: &str, as_json: bool) -> anyhow::Result<()> {
    let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let host = policy_host()?;
    let artifact = Artifact::new(&bytes).with_context(|| file.display().to_string())?;
    let mut told = None;
    for slot in artifact.slots() {
        let candidate = host.prepare(*slot, &artifact, config);
        told = Some(candidate.with_context(|| format!("{}, slot {slot}", file.display()))?.descriptor().clone());
    }
    // A component without a slot is no artifact.
    let Some(told) = told else { return Ok(()) };
    let slots: Vec<&str> = artifact.slots().iter().map(|slot| slot.name()).collect();
    let (digest, len) = (artifact.digest().to_string(), bytes.len());
    if as_json {
        let Descriptor { name, version, .. } = &told;
        println!("{}", json!({ "name": **name, "version": version, "slots": slots, "digest": digest, "bytes": len }));
    } else {
        println!("{} {}: accepted for {}, {len} bytes, {digest}", told.name, told.version, slots.join(" and "));
    }
    Ok(())
}

/// Decides a saved log again, or lets another policy decide.
pub(super) fn replay(
    file: &Path,
    policies: &[PathBuf],
    with: Option<&str>,
    config: &str,
    as_json: bool,
) -> anyhow::Result<()> {
    let log = LogFile(fs::read(file).with_context(|| format!("read {}", file.display()))?);
    let (host, registry) = (policy_host()?, Registry::default());
    match with {
        Some(policy) => {
            let artifact = registry.find(source(policy))?.1;
            let mut rival = None;
            for frame in log.frames() {
                let frame = frame?.1;
                // The log says which slot it is of.
                if let (None, Body::Start(start)) = (&rival, &frame.body) {
                    rival = Some(host.rival(host.prepare(start.slot, &artifact, config)?));
                }
                if let Some(rival) = &mut rival {
                    rival.step(&frame);
                }
            }
            let mut rival = rival.context("the log is empty")?;
            rival.settle();
            show_rival(policy, rival.report(), as_json);
            Ok(())
        }
        None => {
            let mut given = Vec::new();
            for path in policies {
                given.push(fs::read(path).with_context(|| format!("read {}", path.display()))?);
            }
            let find = |digest: Digest| {
                let bytes = given.iter().find(|bytes| Digest::of(bytes) == digest);
                match bytes {
                    Some(bytes) => Artifact::new(bytes).ok(),
                    None => registry.find(PolicySource::Name(digest.to_string())).ok().map(|(_, artifact)| artifact),
                }
            };
            let mut replay = Replay::new(&host, &find);
            for frame in log.frames() {
                let (number, frame) = frame?;
                replay.step(number, &frame)?;
            }
            show_replay(replay.report(), as_json)
        }
    }
}

fn show_replay(report: &ReplayReport, as_json: bool) -> anyhow::Result<()> {
    let ReplayReport { frames, decisions, faults, skipped, differences, first } = report;
    if as_json {
        let counts = json!({
            "frames": frames, "decisions": decisions, "faults": faults, "skipped": skipped, "differences": differences,
        });
        println!("{counts}");
    } else {
        println!("{decisions} decisions in {frames} frames, {faults} of them faults; {skipped} could not be repeated");
    }
    match first {
        None => Ok(()),
        Some(first) => bail!(
            "{differences} calls came out differently, the first of them {} in frame {}: {:?}, not {:?}",
            first.call,
            first.frame,
            first.replayed,
            first.recorded
        ),
    }
}

fn show_rival(policy: &str, report: &RivalReport, as_json: bool) {
    let RivalReport { decisions, agreed, invalid, faults, missed, fuel_max, fuel_total, .. } = report;
    let service = report.service_micros as f64 / report.service_decisions.max(1) as f64;
    let (faulty, mean) = (faults.iter().sum::<u64>(), fuel_total.checked_div(*decisions).unwrap_or(0));
    if as_json {
        let counts = json!({
            "policy": policy, "decisions": decisions, "agreed": agreed, "invalid": invalid, "faults": faulty,
            "missed": missed, "fuel_mean": mean, "fuel_max": fuel_max, "service_micros": service,
        });
        println!("{counts}");
        return;
    }
    println!("{policy}: the same answer to {agreed} of {decisions} questions; {missed} could not be asked");
    println!("  fuel of a decision: {mean} on average, {fuel_max} at most");
    if report.service_decisions > 0 {
        println!("  where it chose another chain, that chain's jobs take {service:+.0} us on average");
    }
    for (class, count) in FaultClass::ALL.iter().zip(faults).filter(|(_, count)| **count > 0) {
        println!("  faults: {} {count}", class.name());
    }
    if *invalid > 0 {
        println!("  answers that could not have been carried out: {invalid}");
    }
    if let Some(fault) = &report.last_fault {
        println!("  the last: {fault}");
    }
}
