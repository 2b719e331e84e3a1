//! Streams: equal to plain answers, equal whatever the stages, the batch and the policy; cancelled when nobody listens.

use pointsman_e2e::Server;
use serde_json::{Value, json};

const PROMPTS: [&str; 4] = ["The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Water boils at"];

fn bodies(count: usize, tokens: u32) -> Vec<Value> {
    let body = |i: usize| {
        let temperature = if i % 2 == 1 { 0.0 } else { 0.9 };
        let prompt = format!("{} ({i})", PROMPTS[i % PROMPTS.len()]);
        json!({ "prompt": prompt, "max_tokens": tokens, "temperature": temperature, "seed": i, "ignore_eos": true })
    };
    (0..count).map(body).collect()
}

#[test]
fn a_chat_makes_sense_and_its_stream_equals_the_plain_answer() {
    let server = Server::start(&[]);
    let body = json!({ "messages": [{ "role": "user", "content": "Name three primary colours." }], "max_tokens": 48, "temperature": 0 });
    let plain = server.post("/v1/chat/completions", &body);
    assert_eq!(plain.status, 200, "{}", plain.text);
    let message = plain.json["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(message.to_lowercase().contains("red"), "{message}");
    let streamed: String = server
        .stream("/v1/chat/completions", body)
        .filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(streamed, message);
    server.wait_idle();
}

#[test]
fn stages_and_batch_size_change_no_token() {
    let bodies = bodies(8, 24);
    let mut first = None;
    for stages in ["1", "2", "3"] {
        let server = Server::start(&["--stages", stages]);
        for at_once in [1, 8] {
            let texts = server.completions(&bodies, at_once);
            let expected = first.get_or_insert_with(|| server.completions(&bodies, 1));
            assert_eq!(&texts, expected, "{stages} stages, {at_once} at once");
        }
    }
}

#[test]
fn a_closed_connection_frees_the_work() {
    let server = Server::start(&["--max-jobs", "2"]);
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": true });
    // Two run and two wait in the queue.
    let mut streams: Vec<_> = (0..2).map(|_| server.stream("/v1/completions", body.clone())).collect();
    for stream in &mut streams {
        assert!(stream.next().is_some());
    }
    assert!(server.metric("pointsman_requests_running") > 0.0);
    drop(streams);
    server.wait_idle();
}

#[test]
fn sigterm_lets_streams_finish_and_refuses_new_requests() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, "ignore_eos": true });
    let expected = server.completion(&body);
    let mut stream = server.stream("/v1/completions", body.clone());
    let mut text = stream.next().unwrap()["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    server.terminate();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let refused = server.post("/v1/completions", &body);
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.retry_after.is_some());
    for frame in stream {
        text += frame["choices"][0]["text"].as_str().unwrap_or_default();
    }
    assert_eq!(text, expected.text);
    assert_eq!(server.wait(), Some(0));
}
