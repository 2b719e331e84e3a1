//! What an operator does with policies: trust, trial, shadow, explain, log and replay, over the command line.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use pointsman_e2e::{Server, run};
use serde_json::{Value, json};

fn guest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../security/guests/dist").join(format!("{name}.wasm"))
}

/// What a command printed, or what it said when it failed.
fn said(words: &[&str]) -> Result<String, String> {
    let output = run(words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&said(&[words, &["--json"]].concat()).unwrap()).unwrap()
}

#[test]
fn a_slot_with_signers_takes_signed_policies_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (key, stranger, policy) = (path("team.key"), path("stranger.key"), path("first.wasm"));
    let public = said(&["policy", "sign", "--new-key", &key]).unwrap();
    said(&["policy", "sign", "--new-key", &stranger]).unwrap();
    assert!(said(&["policy", "sign", "--new-key", &key]).unwrap_err().contains("exists"), "a key is never overwritten");
    fs::write(path("signers"), format!("# the team\n{public}")).unwrap();
    fs::copy(guest("always-first"), &policy).unwrap();

    let server = Server::start(&["--trust", &format!("route={}", path("signers"))]);
    let swap = || said(&["policy", "swap", "route", &policy, "--server", &server.url]);
    assert!(swap().unwrap_err().contains("takes signed policies only"));
    said(&["policy", "sign", &policy, "--key", &stranger]).unwrap();
    assert!(swap().unwrap_err().contains("may not sign"));
    let foreign = said(&["policy", "sign", &policy, "--key", &key, "--slot", "batch"]);
    assert!(foreign.unwrap_err().contains("does not serve the slot batch"));
    said(&["policy", "sign", &policy, "--key", &key, "--valid-days", "1"]).unwrap();
    assert!(swap().unwrap().contains("always-first"));
    // What ships is trusted, and what was accepted can be named by its digest.
    said(&["policy", "swap", "route", "route-jsq", "--server", &server.url]).unwrap();
    let digest = json(&["policy", "sign", &policy, "--key", &key])["digest"].as_str().unwrap().to_owned();
    said(&["policy", "swap", "route", &digest, "--server", &server.url]).unwrap();
    // Another component under the same signature.
    fs::copy(guest("trap-on-tenth"), &policy).unwrap();
    assert!(swap().unwrap_err().contains("but the component is"));
}

#[test]
fn a_trial_a_shadow_and_the_log_tell_how_it_was_decided() {
    let server = Server::start(&["--chains", "2"]);
    let at = |words: &[&str]| json(&[words, &["--server", &server.url]].concat());
    let ask = |n: usize| {
        let body =
            json!({ "prompt": format!("The number {n} is"), "max_tokens": 2, "temperature": 0, "ignore_eos": true });
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json["id"].as_str().unwrap().to_owned()
    };
    at(&["policy", "shadow", "route", "route-round-robin"]);
    let trial = at(&["policy", "swap", "route", "route-round-robin", "--mode", "trial", "--percent", "50"]);
    assert_eq!((&trial["active"]["name"], &trial["trial"]["percent"]), (&json!("route-jsq"), &json!(50.0)));
    let ids: Vec<String> = (0..30).map(ask).collect();

    // Explained by the policy that decided, with the scores that it gives.
    let told: Vec<Value> = ids.iter().map(|id| at(&["policy", "explain", id])).collect();
    for told in &told {
        let (chosen, candidates) = (told["decision"].as_str().unwrap(), told["candidates"].as_array().unwrap());
        let best = candidates.iter().filter(|it| it["score"].is_number());
        let best = best.min_by(|a, b| a["score"].as_f64().unwrap().total_cmp(&b["score"].as_f64().unwrap())).unwrap();
        assert_eq!(chosen, format!("chain {}", best["chain"]), "{told}");
    }
    let by = |name: &str| told.iter().filter(|told| told["policy"] == name).count();
    assert!(by("route-jsq") > 4 && by("route-round-robin") > 4, "{told:?}");
    assert!(said(&["policy", "explain", "999999", "--server", &server.url]).is_err());

    let promoted = at(&["policy", "promote", "route"]);
    assert_eq!((&promoted["active"]["name"], &promoted["trial"]), (&json!("route-round-robin"), &Value::Null));
    assert!(promoted["shadow"]["decisions"].as_u64().unwrap() > 0, "{promoted}");
    assert_eq!(promoted["shadow"]["invalid"], 0);
    assert!(said(&["policy", "promote", "route", "--server", &server.url]).unwrap_err().contains("nothing to promote"));

    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("day.log").display().to_string();
    at(&["policy", "log", "route", "-o", &log]);
    let replayed = json(&["policy", "replay", &log]);
    assert_eq!((&replayed["differences"], &replayed["skipped"]), (&json!(0), &json!(0)), "{replayed}");
    assert!(replayed["decisions"].as_u64().unwrap() >= 30);
    let other = json(&["policy", "replay", &log, "--with", "route-jffc"]);
    assert_eq!((&other["invalid"], &other["faults"]), (&json!(0), &json!(0)), "{other}");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&log, bytes).unwrap();
    assert!(said(&["policy", "replay", &log]).unwrap_err().contains("is damaged"));

    let audit = server.send("GET", "/admin/v1/audit", "application/json", &[]).json;
    let actions: Vec<&str> = audit.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["shadow", "trial", "promote"]);
}

#[test]
fn a_policy_that_faults_too_often_is_taken_out_and_stays_out() {
    let server = Server::start(&[]);
    let policy = guest("forged-chain").display().to_string();
    said(&["policy", "swap", "route", &policy, "--no-rehearsal", "--server", &server.url]).unwrap();
    for n in 0..4 {
        let body = json!({ "prompt": format!("The number {n} is"), "max_tokens": 2, "temperature": 0 });
        assert_eq!(server.post("/v1/completions", &body).status, 200);
    }
    let listing = json(&["policy", "list", "--server", &server.url]);
    assert_eq!(listing["slots"][0]["active"]["name"], "route-jsq", "{listing}");
    let barred = &listing["quarantined"][0];
    assert_eq!(barred["strikes"], 1, "{listing}");
    let refused = said(&["policy", "swap", "route", &policy, "--server", &server.url]).unwrap_err();
    assert!(refused.contains("refused at quarantine"), "{refused}");
    let digest = barred["digest"].as_str().unwrap();
    said(&["policy", "clear", digest, "--server", &server.url]).unwrap();
    let refused = said(&["policy", "swap", "route", &policy, "--server", &server.url]).unwrap_err();
    assert!(refused.contains("refused at rehearsal"), "{refused}");
}
