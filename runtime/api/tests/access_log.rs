//! The access log. A process of its own: which log lines are wanted is remembered for the whole process, by whichever test
//! comes first.

#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "helpers shared with the other tests")]

#[path = "api/fake.rs"]
mod fake;

use std::sync::{Arc, Mutex};

use pointsman_engine::output::Finish;
use serde_json::json;

use fake::{Fake, Script, app, get, post, says};

/// Collects what the log writes.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_request_has_one_line_in_the_access_log_but_probes_have_none() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let app = app(&Fake::new(Script::Play(says("abc", Finish::Stop))));
    for path in ["/health", "/health/live", "/health/ready", "/metrics"] {
        get(&app, path).await;
    }
    for stream in [true, false] {
        post(&app, "/v1/completions", &json!({"prompt": "hi", "stream": stream, "seed": 42})).await;
    }
    post(&app, "/v1/chat/completions", &json!({"messages": 1})).await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("pointsman::access")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    for line in &lines[..2] {
        for fact in
            ["/v1/completions", "status=200", "seed=42", "prompt_tokens=2", "output_tokens=3", "finish=\"stop\""]
        {
            assert!(line.contains(fact), "{fact} {line}");
        }
        assert!(line.contains("ttft_ms=") && line.contains("total_ms="));
    }
    assert!(lines[2].contains("status=400") && lines[2].contains("finish=\"-\""));
}
