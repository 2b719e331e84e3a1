//! The `pointsman policy` commands: those that ask a running server's admin endpoints are here, the others in
//! modules of their own.

mod bench;
mod client;
mod exam;
mod local;
mod new;
mod sign;

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use pointsman_api::service::{DecisionInfo, PolicyInfo, PolicyListing, SlotState};
use serde_json::{Value, json};

use crate::cli::{ModeArg, PolicyCommand, ServerArgs, SwapArgs};
use client::Client;

/// Runs a `policy` command.
///
/// # Errors
/// As the command's own; a refusal by the server carries the server's words.
pub fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List { server } => list(&server),
        PolicyCommand::Swap { slot, swap: what, mode, server } => swap(&slot, &what, mode, &server),
        PolicyCommand::Shadow { slot, policy, policy_config, server } => {
            if policy == "off" {
                return change("DELETE", &format!("/admin/v1/slots/{slot}/shadow"), &server);
            }
            let what = SwapArgs { policy, policy_config, ..SwapArgs::default() };
            swap(&slot, &what, ModeArg::Shadow, &server)
        }
        PolicyCommand::Promote { slot, server } => change("POST", &format!("/admin/v1/slots/{slot}/promote"), &server),
        PolicyCommand::Rollback { slot, server } => {
            change("POST", &format!("/admin/v1/slots/{slot}/rollback"), &server)
        }
        PolicyCommand::Eject { slot, server } => change("DELETE", &format!("/admin/v1/slots/{slot}"), &server),
        PolicyCommand::Clear { digest, server } => {
            let answer = Client::new(&server)?.send("DELETE", &format!("/admin/v1/quarantine/{digest}"), None)?;
            show_list(answer, server.json)
        }
        PolicyCommand::Explain { request, server } => explain(&request, &server),
        PolicyCommand::Log { slot, output, server } => {
            let log = Client::new(&server)?.fetch("GET", &format!("/admin/v1/slots/{slot}/log"), None)?;
            fs::write(&output, &log).with_context(|| format!("write {}", output.display()))?;
            if server.json {
                println!("{}", json!({ "path": output, "bytes": log.len() }));
            } else {
                println!("{}: {} bytes", output.display(), log.len());
            }
            Ok(())
        }
        PolicyCommand::New { name, slot, within, json } => new::new(&name, slot, &within, json),
        PolicyCommand::Test { policy, policy_config, histories, json } => {
            exam::test(&policy, &policy_config, histories, json)
        }
        PolicyCommand::Bench { policy, policy_config, json } => bench::bench(&policy, &policy_config, json),
        PolicyCommand::Sign { file, key, new_key, slot, valid_days, json } => {
            sign::sign(file.as_deref(), key.as_deref(), new_key.as_deref(), &slot, valid_days, json)
        }
        PolicyCommand::Build { dir, output, json } => local::build(&dir, &output, json),
        PolicyCommand::Check { file, policy_config, json } => local::check(&file, &policy_config, json),
        PolicyCommand::Replay { file, policy, with, policy_config, json } => {
            local::replay(&file, &policy, with.as_deref(), &policy_config, json)
        }
    }
}

fn list(server: &ServerArgs) -> anyhow::Result<()> {
    show_list(Client::new(server)?.send("GET", "/admin/v1/policies", None)?, server.json)
}

fn show_list(answer: Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{answer}");
        return Ok(());
    }
    let listing: PolicyListing = serde_json::from_value(answer).context("the server's answer is not understood")?;
    for slot in &listing.slots {
        show(slot);
    }
    println!("available, for contract {}:", listing.contracts.join(", "));
    for it in &listing.available {
        println!("  {}  {}", policy_line(&it.policy), it.slots.join(" "));
    }
    for barred in &listing.quarantined {
        let when = match barred.seconds {
            None => "until cleared".to_owned(),
            Some(seconds) => format!("for {seconds} s"),
        };
        println!("out {when}: {} ({} removals, {})", barred.digest, barred.strikes, barred.reason);
    }
    Ok(())
}

fn swap(slot: &str, what: &SwapArgs, mode: ModeArg, server: &ServerArgs) -> anyhow::Result<()> {
    let mut path = format!("/admin/v1/slots/{slot}");
    let mut options = options(what, mode);
    let file = Path::new(&what.policy);
    let body = if file.is_file() {
        options.push(("config", what.policy_config.clone().into()));
        let signature = fs::read_to_string(format!("{}.sig", what.policy)).unwrap_or_default();
        options.push(("signature", signature.into()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in options.iter().filter(|(_, value)| *value != "") {
            query.append_pair(name, value.as_str().unwrap_or(&value.to_string()));
        }
        path = format!("{path}?{}", query.finish());
        ("application/wasm", fs::read(file).with_context(|| format!("read {}", what.policy))?)
    } else if what.policy.ends_with(".wasm") {
        bail!("{}: there is no such file", what.policy);
    } else {
        let mut body = json!({ "policy": what.policy });
        if !what.policy_config.is_empty() {
            body["config"] = serde_json::from_str(&what.policy_config).context("--policy-config is not JSON")?;
        }
        for (name, value) in options {
            body[name] = value;
        }
        ("application/json", body.to_string().into_bytes())
    };
    show_slot(Client::new(server)?.send("PUT", &path, Some(body))?, server.json)
}

/// What differs from the usual, by the names of the HTTP interface.
fn options(what: &SwapArgs, mode: ModeArg) -> Vec<(&'static str, Value)> {
    let mode = match mode {
        ModeArg::Active => None,
        ModeArg::Trial => Some("trial"),
        ModeArg::Shadow => Some("shadow"),
    };
    let given = [
        ("mode", mode.map(Value::from)),
        ("percent", what.percent.map(Value::from)),
        ("rehearse", what.no_rehearsal.then(|| false.into())),
        ("guard_faults", what.no_guard.then(|| false.into())),
        ("slo_margin_percent", what.slo_margin_percent.map(Value::from)),
        ("slo_requests", what.slo_requests.map(Value::from)),
        ("promote", what.promote.then(|| true.into())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn change(method: &str, path: &str, server: &ServerArgs) -> anyhow::Result<()> {
    show_slot(Client::new(server)?.send(method, path, None)?, server.json)
}

fn show_slot(answer: Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{answer}");
    } else {
        show(&serde_json::from_value(answer).context("the server's answer is not understood")?);
    }
    Ok(())
}

fn show(slot: &SlotState) {
    let name = |policy: &Option<PolicyInfo>| policy.as_ref().map_or_else(|| "builtin".to_owned(), policy_line);
    println!("{}: {}, generation {}; before: {}", slot.slot, name(&slot.active), slot.generation, name(&slot.previous));
    let counts = |faults: &[(String, u64)]| {
        let counts: Vec<String> = faults.iter().map(|(class, count)| format!("{class} {count}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    };
    if !slot.faults.is_empty() {
        println!("  faults: {}", counts(&slot.faults));
    }
    if let Some(fault) = &slot.last_fault {
        println!("  last fault: {fault}");
    }
    if let Some(trial) = &slot.trial {
        println!(
            "  on trial with {} %: {}, faults: {}",
            trial.percent,
            policy_line(&trial.policy),
            counts(&trial.faults)
        );
        let (ttft, tpot) = (trial.ttft_ratio, trial.tpot_ratio);
        println!("    {} requests; time to first token x{ttft:.3}, per output token x{tpot:.3}", trial.requests);
    }
    if let Some(watch) = &slot.watch {
        let (ttft, tpot) = (watch.ttft_ratio, watch.tpot_ratio);
        println!(
            "  watched: {} requests; against before, time to first token x{ttft:.3}, per output token x{tpot:.3}",
            watch.requests
        );
    }
    if let Some(shadow) = &slot.shadow {
        let faults = counts(&shadow.faults);
        println!("  shadow: {}, faults: {faults}, invalid: {}", policy_line(&shadow.policy), shadow.invalid);
        let (agreed, decisions, (mean, max)) = (shadow.agreed, shadow.decisions, shadow.fuel);
        println!(
            "    the same answer to {agreed} of {decisions}; fuel {mean} on average, {max} at most; missed {}",
            shadow.missed
        );
        if let Some(fault) = &shadow.last_fault {
            println!("    last fault: {fault}");
        }
    }
}

fn policy_line(policy: &PolicyInfo) -> String {
    format!("{} {} {:.19}…", policy.name, policy.version, policy.digest)
}

fn explain(request: &str, server: &ServerArgs) -> anyhow::Result<()> {
    let answer = Client::new(server)?.send("GET", &format!("/admin/v1/decisions/{request}"), None)?;
    if server.json {
        println!("{answer}");
        return Ok(());
    }
    let told: DecisionInfo = serde_json::from_value(answer).context("the server's answer is not understood")?;
    let digest = told.digest.as_deref().unwrap_or("native");
    let trial = if told.on_trial { ", on trial" } else { "" };
    println!(
        "request {}: {} by {} ({digest:.19}), generation {}{trial}",
        told.request, told.decision, told.policy, told.generation
    );
    if let Some(class) = &told.fault {
        println!("  the policy's answer was not used ({class}); the builtin decided");
    }
    println!("  prompt {} tokens, {} reserved; fuel {}", told.prompt_tokens, told.reserve_tokens, told.fuel);
    if let Some(why) = &told.no_scores {
        println!("  no scores: {why}");
    }
    println!("  chain   busy  capacity  free tokens  cached  service us  fits  score");
    for chain in &told.candidates {
        let score = chain.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"));
        println!(
            "  {:>5}  {:>5}  {:>8}  {:>11}  {:>6}  {:>10}  {:>4}  {score}",
            chain.chain,
            chain.busy,
            chain.capacity,
            chain.free_tokens,
            chain.cached_tokens,
            chain.service_micros,
            if chain.fits { "yes" } else { "no" },
        );
    }
    Ok(())
}
