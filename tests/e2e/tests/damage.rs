//! Damaged input: a clear error, nothing lost, the server alive.

use std::fs;

use pointsman_e2e::{Server, run};
use serde_json::json;

#[test]
fn a_damaged_model_file_ends_the_start_with_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(pointsman_golden::default_model()).unwrap();
    let mut absurd = whole[..4096].to_vec();
    absurd[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let cases: [(&str, &[u8], &str); 5] = [
        ("truncated header", &whole[..1000], "cut short"),
        ("truncated tensors", &whole[..whole.len() / 2], "tensor"),
        ("absurd count", &absurd, "tensors"),
        ("not a model", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS"),
        ("empty", b"", "empty"),
    ];
    for (name, bytes, expected) in cases {
        let path = dir.path().join("damaged.gguf");
        fs::write(&path, bytes).unwrap();
        let output = run(&["serve", "--listen", "127.0.0.1:0", "--model", path.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("damaged.gguf") && said.contains(expected), "{name}: {said}");
        assert!(!said.contains("panicked"), "{name}: {said}");
    }
}

#[test]
fn bad_requests_get_clear_errors_and_the_server_lives() {
    let server = Server::start(&[]);
    let deep = "[".repeat(100_000);
    let raw: [(&str, &[u8]); 5] = [
        ("invalid JSON", b"{:"),
        ("not an object", b"[]"),
        ("empty", b""),
        ("not UTF-8", b"{\"prompt\":\"\xff\"}"),
        ("deep", deep.as_bytes()),
    ];
    for (name, body) in raw {
        let answer = server.send("POST", "/v1/completions", "application/json", body);
        assert_eq!(answer.status, 400, "{name}: {}", answer.text);
        assert!(
            answer.json["error"]["message"].is_string() && answer.json["error"]["type"].is_string(),
            "{name}: {}",
            answer.text
        );
    }
    let cases = [
        (json!({ "prompt": "a", "temperature": "hot" }), 400, "temperature"),
        (json!({ "prompt": "a", "model": "nope" }), 404, "nope"),
        (json!({ "prompt": "word ".repeat(20_000) }), 400, "8192"),
        (json!({ "prompt": [999_999] }), 400, "999999"),
        (json!({ "prompt": "a", "max_tokens": 9000 }), 400, "8192"),
        (json!({ "prompt": "" }), 400, "prompt"),
        (json!({ "prompt": "a", "n": 3 }), 400, "n"),
    ];
    for (body, status, expected) in cases {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, status, "{}", answer.text);
        let message = answer.json["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{expected}: {message}");
    }
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "Hello", "max_tokens": 2 })).status, 200);
    server.wait_idle();
}
