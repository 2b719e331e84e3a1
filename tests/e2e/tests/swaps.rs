//! Policies swapped while streams run: nothing is lost, no stream differs, faulty policies show with their class.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pointsman_e2e::{Server, run};
use serde_json::json;

fn hostile(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../security/guests/dist").join(format!("{name}.wasm"))
}

fn swap(server: &Server, slot: &str, policy: &str, flags: &[&str]) -> Result<(), String> {
    let output = run(&[&["policy", "swap", slot, policy, "--server", &server.url], flags].concat());
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn a_hundred_swaps_under_load_change_nothing() {
    let server = Server::start(&["--chains", "2"]);
    let body = |i: usize| json!({ "prompt": format!("Tell me about the number {i}."), "max_tokens": 12, "temperature": 0, "ignore_eos": true });
    let bodies: Vec<_> = (0..24).map(body).collect();
    let calm = server.completions(&bodies, 8);

    let faulty =
        ["trap-on-fourth", "loop-on-fourth", "memory-on-fourth"].map(|name| hostile(name).display().to_string());
    let decisions = || server.metric("pointsman_decisions_total{slot=\"route\"");
    let windows = ["window-trap", "window-loop", "window-hold"].map(|name| hostile(name).display().to_string());
    let swaps = thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut swaps = 0;
            while swaps < 100 {
                let policy = match swaps % 4 {
                    0 => "route-jsq",
                    2 => "route-round-robin",
                    _ => &faulty[swaps / 2 % faulty.len()],
                };
                // A faulty one would be found out by its rehearsal, and stays out for a while once it has been taken out.
                let brave = |slot, policy| match swap(&server, slot, policy, &["--no-rehearsal"]) {
                    Err(refused) if refused.contains("quarantine") => {}
                    outcome => outcome.unwrap(),
                };
                brave("route", policy);
                match swaps % 20 {
                    5 => brave("batch", "batch-fair"),
                    10 => brave("cache", "cache-cost-aware"),
                    15 => brave("batch", &windows[swaps / 20 % windows.len()]),
                    _ => {}
                }
                swaps += 1;
                // The first faulty ones are left in place until they have had their fourth request, and failed.
                let until = if swaps % 2 == 0 && swaps <= 12 { decisions() + 6.0 } else { 0.0 };
                while decisions() < until {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            swaps
        });
        while !swapper.is_finished() {
            assert_eq!(server.completions(&bodies, 8), calm);
        }
        swapper.join().unwrap()
    });
    assert_eq!(swaps, 100);

    let metrics = server.send("GET", "/metrics", "text/plain", &[]).text;
    for class in ["trap", "fuel", "memory"] {
        let label = format!("class=\"{class}\"");
        let line =
            metrics.lines().find(|line| line.starts_with("pointsman_policy_fallbacks_total") && line.contains(&label));
        let count: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0);
        assert!(count > 0.0, "no fallback of class {class} in\n{metrics}");
    }
    server.wait_idle();
}

#[test]
fn a_policy_that_can_not_start_is_refused_and_the_active_one_stays() {
    let server = Server::start(&["--chains", "2"]);
    for name in [
        "trap-in-init",
        "loop-in-init",
        "memory-in-init",
        "init-error",
        "forbidden-import",
        "no-route",
        "loop-in-start",
    ] {
        let refused = swap(&server, "route", &hostile(name).display().to_string(), &[]).unwrap_err();
        assert!(refused.len() > 20, "{name}: {refused}");
    }
    let listing = server.send("GET", "/admin/v1/policies", "application/json", &[]).json;
    assert_eq!(listing["slots"][0]["active"]["name"], "route-jsq", "{listing}");
    let answer = server.post("/v1/completions", &json!({ "prompt": "Hello", "max_tokens": 2 }));
    assert_eq!(answer.status, 200);
}

#[test]
fn rollback_brings_the_previous_policy_back_and_eject_the_builtin() {
    let server = Server::start(&[]);
    swap(&server, "route", "route-round-robin", &[]).unwrap();
    let active = || server.send("GET", "/admin/v1/slots/route", "application/json", &[]).json["active"]["name"].clone();
    assert_eq!(active(), "route-round-robin");
    assert!(run(&["policy", "rollback", "route", "--server", &server.url]).status.success());
    assert_eq!(active(), "route-jsq");
    assert!(run(&["policy", "eject", "route", "--server", &server.url]).status.success());
    assert!(active().is_null());
    let unknown = swap(&server, "route", "route-nonsense", &[]).unwrap_err();
    assert!(unknown.contains("route-nonsense") && unknown.contains("route-jsq"), "{unknown}");
}
