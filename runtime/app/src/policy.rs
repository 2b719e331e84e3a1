//! The `pointsman policy` commands: build and check a component here, or ask a running server's admin endpoints.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use pointsman_api::service::{PolicyInfo, PolicyListing, SlotState};
use pointsman_policy::{Artifact, Digest, PolicyHost};
use serde_json::{Value, json};

use crate::cli::{PolicyCommand, ServerArgs};
use crate::config::read_token;

/// Runs a `policy` command.
///
/// # Errors
/// As the command's own; a refusal by the server carries the server's words.
pub fn run(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List { server } => list(&server),
        PolicyCommand::Swap { slot, policy, policy_config, server } => swap(&slot, &policy, &policy_config, &server),
        PolicyCommand::Rollback { slot, server } => {
            let answer = Client::new(&server)?.send("POST", &format!("/admin/v1/slots/{slot}/rollback"), None)?;
            show_slot(answer, server.json)
        }
        PolicyCommand::Eject { slot, server } => {
            let answer = Client::new(&server)?.send("DELETE", &format!("/admin/v1/slots/{slot}"), None)?;
            show_slot(answer, server.json)
        }
        PolicyCommand::Build { dir, output, json } => build(&dir, &output, json),
        PolicyCommand::Check { file, policy_config, json } => check(&file, &policy_config, json),
    }
}

fn list(server: &ServerArgs) -> anyhow::Result<()> {
    let answer = Client::new(server)?.send("GET", "/admin/v1/policies", None)?;
    if server.json {
        println!("{answer}");
        return Ok(());
    }
    let listing: PolicyListing = serde_json::from_value(answer).context("the server's answer is not understood")?;
    for slot in &listing.slots {
        println!("{}", slot_line(slot));
    }
    println!("available:");
    for policy in &listing.available {
        println!("  {}", policy_line(policy));
    }
    Ok(())
}

fn swap(slot: &str, policy: &str, config: &str, server: &ServerArgs) -> anyhow::Result<()> {
    let path = format!("/admin/v1/slots/{slot}");
    let file = Path::new(policy);
    let body = if file.is_file() {
        if !config.is_empty() {
            bail!("--policy-config goes with a policy's name; swap the file in once, then name its digest");
        }
        let bytes = fs::read(file).with_context(|| format!("read {policy}"))?;
        ("application/wasm", bytes)
    } else if policy.ends_with(".wasm") {
        bail!("{policy}: there is no such file");
    } else {
        let mut body = json!({ "policy": policy });
        if !config.is_empty() {
            body["config"] = serde_json::from_str(config).context("--policy-config is not JSON")?;
        }
        ("application/json", body.to_string().into_bytes())
    };
    show_slot(Client::new(server)?.send("PUT", &path, Some(body))?, server.json)
}

fn show_slot(answer: Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{answer}");
    } else {
        let slot: SlotState = serde_json::from_value(answer).context("the server's answer is not understood")?;
        println!("{}", slot_line(&slot));
    }
    Ok(())
}

fn slot_line(slot: &SlotState) -> String {
    let name = |policy: &Option<PolicyInfo>| policy.as_ref().map_or_else(|| "builtin".to_owned(), policy_line);
    let faults: Vec<String> = slot.faults.iter().map(|(class, count)| format!("{class} {count}")).collect();
    let mut line = format!("{}: {} [{}, generation {}]", slot.slot, name(&slot.active), slot.status, slot.generation);
    if !faults.is_empty() {
        line += &format!(", faults: {}", faults.join(", "));
    }
    if let Some(fault) = &slot.last_fault {
        line += &format!(", last: {fault}");
    }
    line + &format!("; before: {}", name(&slot.previous))
}

fn policy_line(policy: &PolicyInfo) -> String {
    format!("{} {} {:.19}…", policy.name, policy.version, policy.digest)
}

fn build(dir: &Path, output: &Path, as_json: bool) -> anyhow::Result<()> {
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

fn check(file: &Path, config: &str, as_json: bool) -> anyhow::Result<()> {
    let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let host = PolicyHost::new()?;
    let verdict = Artifact::new(&bytes).and_then(|artifact| host.prepare(&artifact, config));
    let candidate = verdict.with_context(|| file.display().to_string())?;
    let (told, digest) = (candidate.descriptor(), candidate.digest().to_string());
    if as_json {
        println!("{}", json!({ "name": *told.name, "version": told.version, "digest": digest, "bytes": bytes.len() }));
    } else {
        println!("{} {}: accepted, {} bytes, {digest}", told.name, told.version, bytes.len());
    }
    Ok(())
}

/// Talks to the admin endpoints of one server.
struct Client {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    fn new(server: &ServerArgs) -> anyhow::Result<Self> {
        if server.server.starts_with("https:") {
            bail!("{}: reach the admin endpoints over http, from the server's own machine", server.server);
        }
        let settings =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(60)));
        Ok(Self {
            agent: settings.build().into(),
            base: server.server.trim_end_matches('/').to_owned(),
            token: server.admin_token_file.as_deref().map(read_token).transpose()?,
        })
    }

    /// Sends a request and takes a JSON answer; an error answer becomes an error with the server's message.
    fn send(&self, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> anyhow::Result<Value> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (kind, body) = body.unwrap_or(("application/json", Vec::new()));
        let request = request.header("content-type", kind).body(body).context("the server's address is not a URL")?;
        let mut answer = self.agent.run(request).with_context(|| format!("reach the server at {}", self.base))?;
        let status = answer.status();
        let text = answer.body_mut().read_to_string().context("read the server's answer")?;
        if status.is_success() {
            return serde_json::from_str(&text).context("the server's answer is not JSON");
        }
        let said = serde_json::from_str::<Value>(&text).ok();
        let message = said.as_ref().and_then(|said| said["error"]["message"].as_str());
        bail!("{}", message.unwrap_or(&format!("the server answered {status}")))
    }
}
