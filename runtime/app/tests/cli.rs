//! The command line from outside: exit statuses and messages. (That the binary is built for these tests is what the
//! end-to-end tests rely on.)

#![expect(clippy::unwrap_used, reason = "a surprise is a failed test")]

use std::process::{Command, Output};

fn pointsman(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pointsman")).args(words).output().unwrap()
}

#[test]
fn help_and_version_are_not_errors() {
    for words in [&["--help"][..], &["--version"], &["serve", "--help"], &["policy", "swap", "--help"]] {
        let output = pointsman(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for words in [
        &["serve", "--stages", "0"][..],
        &["serve", "--no-such-flag"],
        &["serve", "--prefix-cache", "maybe"],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(pointsman(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn a_failure_ends_with_1_and_says_why() {
    let cases: [(&[&str], &str); 5] = [
        (&["serve", "--listen", "127.0.0.1:0", "--model", "no-such-model"], "known models: SmolLM2-135M-Instruct"),
        (&["serve", "--policy", "rout=x"], "slots: route"),
        (&["serve", "--listen", "127.0.0.1:0", "--simd", "mmx"], "avx512, avx2 or reference"),
        (&["policy", "swap", "route", "missing.wasm"], "missing.wasm: there is no such file"),
        (&["policy", "list", "--server", "http://127.0.0.1:1"], "reach the server at http://127.0.0.1:1"),
    ];
    for (words, expected) in cases {
        let output = pointsman(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn check_accepts_a_shipped_policy_and_refuses_a_hostile_one() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let good = pointsman(&["policy", "check", &format!("{root}/plugins/dist/route-jsq.wasm")]);
    assert_eq!(good.status.code(), Some(0), "{}", String::from_utf8_lossy(&good.stderr));
    let bad = pointsman(&["policy", "check", &format!("{root}/tests/security/guests/dist/loop-in-init.wasm")]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(1));
    assert!(said.contains("init") && said.contains("fuel"), "{said}");
}
