//! Every refusal: its status, its field, and the shape of its body.

use axum::body::Body;
use axum::http::Request;
use pointsman_engine::output::Finish;
use pointsman_engine::request::Reject;
use serde_json::{Value, json};

use crate::fake::{Fake, Script, app, get, post, post_bytes, says, send};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn fake() -> std::sync::Arc<Fake> {
    Fake::new(Script::Play(says("ok", Finish::Stop)))
}

#[tokio::test]
async fn broken_bodies_are_400_with_their_place() {
    let app = app(&fake());
    let nested = "[".repeat(100_000);
    let inside = format!("{{\"messages\":{nested}");
    let digits = format!("{{\"prompt\":\"a\",\"temperature\":{}}}", "9".repeat(10_000));
    let bodies: [(&[u8], &str); 13] = [
        (b"{:", "line 1 column 2"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"[]", "object"),
        (b"null", "object"),
        (b"\"x\"", "object"),
        (b"\xef\xbb\xbf{}", "line 1 column 1"),
        (b"{\"prompt\":\"\xff\xfe\"}", "UTF-8"),
        (b"{\"prompt\":\"a\",\"temperature\":NaN}", "line 1 column"),
        (b"{\"prompt\":\"a\",\"prompt\":\"b\"}", "given twice"),
        (nested.as_bytes(), "object"),
        (inside.as_bytes(), "EOF"),
        (digits.as_bytes(), "temperature"),
    ];
    for (body, said) in bodies {
        for path in [CHAT, COMPLETIONS, "/tokenize", "/detokenize"] {
            let answer = post_bytes(&app, path, body.to_vec()).await;
            if path == COMPLETIONS || said != "temperature" {
                assert_eq!(answer.status, 400, "{path} {body:.40?}");
                let error = answer.error();
                assert!(error["message"].as_str().unwrap().contains(said), "{path} {error}");
            }
        }
    }
}

/// Endpoint, fields, status, `param`, and a part of the message.
type Case = (&'static str, Value, u16, Option<&'static str>, &'static str);

fn completion_cases() -> Vec<Case> {
    let many: Vec<String> = (0..20_000).map(|n| format!("x{n}")).collect();
    vec![
        (COMPLETIONS, json!({"prompt": "a", "temperature": "hot"}), 400, Some("temperature"), "hot"),
        (COMPLETIONS, json!({"prompt": "a", "temperature": 5}), 400, Some("temperature"), "temperature"),
        (COMPLETIONS, json!({"prompt": "a", "top_p": -1}), 400, Some("top_p"), "top_p"),
        (COMPLETIONS, json!({"prompt": "a", "top_k": -2}), 400, Some("top_k"), "top_k"),
        (COMPLETIONS, json!({"prompt": "a", "max_tokens": 0}), 400, Some("max_tokens"), "at least 1"),
        (COMPLETIONS, json!({"prompt": "a", "max_tokens": -1}), 400, Some("max_tokens"), "-1"),
        (
            COMPLETIONS,
            json!({"prompt": "a", "max_tokens": 2, "max_completion_tokens": 3}),
            400,
            Some("max_completion_tokens"),
            "contradicts",
        ),
        (COMPLETIONS, json!({"prompt": "a", "max_tokens": 2, "min_tokens": 3}), 400, Some("min_tokens"), "min_tokens"),
        (COMPLETIONS, json!({"prompt": "a", "seed": 1.5}), 400, Some("seed"), "1.5"),
        (COMPLETIONS, json!({"prompt": "a", "seed": 9_223_372_036_854_775_808_u64}), 400, Some("seed"), "seed"),
        (COMPLETIONS, json!({"prompt": "a", "stop": 5}), 400, Some("stop"), "5"),
        (COMPLETIONS, json!({"prompt": "a", "stop": ""}), 400, Some("stop"), "empty"),
        (COMPLETIONS, json!({"prompt": "a", "stop": [""]}), 400, Some("stop"), "empty"),
        (COMPLETIONS, json!({"prompt": "a", "stop": many}), 400, Some("stop"), "20000"),
        (COMPLETIONS, json!({"prompt": "a", "stream": "yes"}), 400, Some("stream"), "yes"),
        (
            COMPLETIONS,
            json!({"prompt": "a", "stream_options": {"include_usage": true}}),
            400,
            Some("stream_options"),
            "stream",
        ),
        (COMPLETIONS, json!({"prompt": "a", "logprobs": 6}), 400, Some("logprobs"), "5"),
        (COMPLETIONS, json!({"prompt": "a", "logit_bias": {"abc": 5}}), 400, Some("logit_bias"), "abc"),
        (COMPLETIONS, json!({"prompt": "a", "logit_bias": {"9999999": 5}}), 400, Some("logit_bias"), "9999999"),
        (COMPLETIONS, json!({"prompt": "a", "logit_bias": {"1": 500}}), 400, Some("logit_bias"), "logit_bias"),
        (COMPLETIONS, json!({"prompt": "a", "stop_token_ids": [999]}), 400, Some("stop_token_ids"), "999"),
        (COMPLETIONS, json!({"prompt": "a", "n": 0}), 400, Some("n"), "only 1"),
        (COMPLETIONS, json!({"prompt": "a", "best_of": 3}), 400, Some("best_of"), "only 1"),
        (COMPLETIONS, json!({"prompt": "a", "suffix": "b"}), 400, Some("suffix"), "not supported"),
        (COMPLETIONS, json!({"prompt": "a", "model": "nope"}), 404, Some("model"), "tiny"),
        (COMPLETIONS, json!({"model": "tiny"}), 400, Some("prompt"), "missing"),
        (COMPLETIONS, json!({"prompt": ""}), 400, Some("prompt"), "empty"),
        (COMPLETIONS, json!({"prompt": []}), 400, Some("prompt"), "empty"),
        (COMPLETIONS, json!({"prompt": [[]]}), 400, Some("prompt"), "empty"),
        (COMPLETIONS, json!({"prompt": ["a", ""]}), 400, Some("prompt"), "batch"),
        (COMPLETIONS, json!({"prompt": {"a": 1}}), 400, Some("prompt"), "must be"),
        (COMPLETIONS, json!({"prompt": [999_999]}), 400, Some("prompt"), "999999"),
        (COMPLETIONS, json!({"prompt": [999_999], "echo": true}), 400, Some("prompt"), "999999"),
        (COMPLETIONS, json!({"prompt": [-5]}), 400, Some("prompt[0]"), "-5"),
        (COMPLETIONS, json!({"prompt": [1, 1.5]}), 400, Some("prompt[1]"), "1.5"),
        (COMPLETIONS, json!({"prompt": "word ".repeat(40)}), 400, Some("prompt"), "200"),
        (COMPLETIONS, json!({"prompt": "word ".repeat(20_000), "stream": true}), 400, Some("prompt"), "100000"),
    ]
}

fn other_cases() -> Vec<Case> {
    let user = json!([{"role": "user", "content": "hi"}]);
    let with = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    vec![
        (CHAT, json!({}), 400, Some("messages"), "missing"),
        (CHAT, json!({"messages": []}), 400, Some("messages"), "empty"),
        (CHAT, json!({"messages": {"role": "user"}}), 400, Some("messages"), "messages"),
        (CHAT, json!({"messages": [{"role": "bogus", "content": "a"}]}), 400, Some("messages[0].role"), "bogus"),
        (CHAT, with(json!(null)), 400, Some("messages[0].content"), "content"),
        (CHAT, with(json!(5)), 400, Some("messages[0].content"), "string or an array"),
        (
            CHAT,
            with(json!([{"type": "image_url", "image_url": {"url": "x"}}])),
            400,
            Some("messages[0].content[0]"),
            "image_url",
        ),
        (CHAT, with(json!([{"type": "text"}])), 400, Some("messages[0].content[0]"), "no text"),
        (CHAT, with(json!("word ".repeat(40))), 400, Some("messages"), "context"),
        (CHAT, json!({"messages": [{"role": "tool", "content": "a"}]}), 400, Some("messages"), "no tools here"),
        (CHAT, json!({"messages": user, "max_tokens": 0}), 400, Some("max_tokens"), "at least 1"),
        (CHAT, json!({"messages": user, "max_tokens": 4000}), 400, Some("messages"), "4000"),
        (CHAT, json!({"messages": user, "top_logprobs": 2}), 400, Some("top_logprobs"), "logprobs"),
        (CHAT, json!({"messages": user, "logprobs": true, "top_logprobs": 21}), 400, Some("top_logprobs"), "20"),
        (CHAT, json!({"messages": user, "tools": [{"type": "function"}]}), 400, Some("tools"), "not supported"),
        (CHAT, json!({"messages": user, "tool_choice": "required"}), 400, Some("tool_choice"), "not supported"),
        (
            CHAT,
            json!({"messages": user, "tool_choice": {"type": "function"}}),
            400,
            Some("tool_choice"),
            "not supported",
        ),
        (CHAT, json!({"messages": user, "modalities": ["text", "audio"]}), 400, Some("modalities"), "text"),
        (
            CHAT,
            json!({"messages": user, "response_format": {"type": "json_object"}}),
            400,
            Some("response_format"),
            "text",
        ),
        (
            CHAT,
            json!({"messages": user, "guided_json": {"type": "object"}}),
            400,
            Some("guided_json"),
            "response_format",
        ),
        ("/tokenize", json!({}), 400, Some("content"), "content"),
        ("/tokenize", json!({"content": 5}), 400, Some("content"), "5"),
        ("/detokenize", json!({}), 400, Some("tokens"), "missing"),
        ("/detokenize", json!({"tokens": [999]}), 400, Some("tokens"), "999"),
    ]
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let fake = fake();
    let app = app(&fake);
    for (path, body, status, param, said) in completion_cases().into_iter().chain(other_cases()) {
        let answer = post(&app, path, &body).await;
        let shown = format!("{path} {body:.200}");
        assert_eq!(answer.status, status, "{shown} {:?}", answer.text());
        let error = answer.error();
        assert_eq!(error["param"].as_str(), param, "{shown} {error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{shown} {error}");
    }
    assert!(fake.requests.lock().unwrap().is_empty(), "nothing of this reaches the engine");
    assert_eq!(post(&app, COMPLETIONS, &json!({"prompt": "a"})).await.status, 200);
}

#[tokio::test]
async fn numbers_beyond_floating_point_are_refused() {
    let app = app(&fake());
    for field in ["temperature", "presence_penalty"] {
        for number in ["1e999", "-1e999", "1e39"] {
            let body = format!("{{\"prompt\":\"a\",\"{field}\":{number}}}");
            let answer = post_bytes(&app, COMPLETIONS, body).await;
            assert_eq!(answer.status, 400, "{field} {number}");
            assert_eq!(answer.error()["param"], field);
        }
    }
}

#[tokio::test]
async fn context_and_model_errors_have_their_codes() {
    let app = app(&fake());
    let long = post(&app, COMPLETIONS, &json!({"prompt": "a".repeat(129), "stream": true})).await;
    assert_eq!((long.status.as_u16(), long.error()["code"].as_str()), (400, Some("context_length_exceeded")));
    let model = post(&app, CHAT, &json!({"model": "gpt", "messages": []})).await;
    assert_eq!((model.status.as_u16(), model.error()["code"].as_str()), (404, Some("model_not_found")));
}

#[tokio::test]
async fn what_the_engine_refuses_has_a_status_for_clients_to_act_on() {
    let cases = [
        (Reject::QueueFull(256), 429, "queue_full", true),
        (Reject::Policy(3), 429, "policy_rejected", true),
        (Reject::Draining, 503, "draining", true),
        (Reject::TooLarge { needed: 100, available: 50 }, 400, "kv_capacity_exceeded", false),
    ];
    for (reject, status, code, retry) in cases {
        let app = app(&Fake::new(Script::Refuse(reject)));
        for stream in [true, false] {
            let answer = post(&app, COMPLETIONS, &json!({"prompt": "a", "stream": stream})).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.error()["code"], code);
            assert_eq!(answer.headers.contains_key("retry-after"), retry);
        }
    }
}

#[tokio::test]
async fn fields_without_effect_are_listed() {
    let app = app(&fake());
    let body = json!({
        "prompt": "a", "foo_bar": 1, "max_token": 5, "reasoning_effort": "low", "tools": [], "tool_choice": "auto",
        "response_format": {"type": "text"}, "audio": null, "bad\nname": 1,
    });
    let answer = post(&app, COMPLETIONS, &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["x-ignored-params"], "foo_bar,max_token,reasoning_effort");
    let answer = post(&app, COMPLETIONS, &json!({"prompt": "a"})).await;
    assert!(!answer.headers.contains_key("x-ignored-params"));
}

#[tokio::test]
async fn bodies_are_json_whatever_their_type_says() {
    let app = app(&fake());
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/JSON")] {
        let request =
            kind.iter().fold(Request::post(COMPLETIONS), |request, kind| request.header("content-type", *kind));
        let answer = send(&app, request.body(Body::from(r#"{"prompt":"a"}"#)).unwrap()).await;
        assert_eq!(answer.status, 200, "{kind:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let zipped = Request::post(COMPLETIONS).header("content-encoding", "gzip").body(Body::from("x")).unwrap();
    let answer = send(&app, zipped).await;
    assert_eq!(answer.status, 415);
    answer.error();
}

#[tokio::test]
async fn bodies_over_the_limit_are_413() {
    let app = app(&fake());
    let body = format!("{{\"prompt\":\"{}\"}}", "a".repeat(9 << 20));
    for path in [CHAT, COMPLETIONS, "/tokenize"] {
        let answer = post_bytes(&app, path, body.clone()).await;
        assert_eq!(answer.status, 413);
        assert!(answer.error()["message"].as_str().unwrap().contains("8388608"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let app = app(&fake());
    let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let answer = post_bytes(&app, COMPLETIONS, Body::from_stream(never)).await;
    assert_eq!(answer.status, 408);
    answer.error();
}

#[tokio::test]
async fn unknown_routes_and_methods_have_the_error_shape() {
    let app = app(&fake());
    let answer = get(&app, "/v1/nothing").await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (404, Some("not_found")));
    let answer = get(&app, CHAT).await;
    assert_eq!(answer.status, 405);
    assert_eq!(answer.headers["allow"], "POST");
    answer.error();
    let answer = get(&app, "/v1/models/%ff").await;
    assert_eq!(answer.status, 400);
    answer.error();
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_lives() {
    let fake = Fake::new(Script::Panic);
    let app = app(&fake);
    let answer = post(&app, COMPLETIONS, &json!({"prompt": "a"})).await;
    assert_eq!(answer.status, 500);
    answer.error();
    *fake.script.lock().unwrap() = Script::Play(says("ok", Finish::Stop));
    assert_eq!(post(&app, COMPLETIONS, &json!({"prompt": "a"})).await.status, 200);
}
