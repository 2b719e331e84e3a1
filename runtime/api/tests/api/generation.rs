//! Answers, in a stream and not.

use pointsman_engine::output::{Event, Finish};
use serde_json::{Value, json};

use crate::fake::{Fake, IM_END, MODEL, Script, app, post, says, token};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn body(path: &str, extra: &Value) -> Value {
    let mut body = match path {
        CHAT => json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}),
        _ => json!({"model": MODEL, "prompt": "hi"}),
    };
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Text, finish reason and usage of a plain answer.
async fn plain(path: &str, script: Vec<Event>, extra: &Value) -> (String, Value, Value) {
    let answer = post(&app(&Fake::new(Script::Play(script))), path, &body(path, extra)).await.json();
    let choice = &answer["choices"][0];
    let text = if path == CHAT { &choice["message"]["content"] } else { &choice["text"] };
    (text.as_str().unwrap().to_owned(), choice["finish_reason"].clone(), answer["usage"].clone())
}

/// The same of a stream, which is checked for what all streams keep.
async fn streamed(path: &str, script: Vec<Event>, extra: &Value) -> (String, Value, Value) {
    let mut body = body(path, extra);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let mut chunks = post(&app(&Fake::new(Script::Play(script))), path, &body).await.events();
    let first = chunks[0].clone();
    for chunk in &chunks {
        for shared in ["id", "object", "created", "model", "system_fingerprint"] {
            assert_eq!(chunk[shared], first[shared]);
        }
    }
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    let closing = chunks.pop().unwrap();
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null() && chunk["choices"][0]["finish_reason"].is_null()));
    if path == CHAT {
        assert_eq!(chunks.remove(0)["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
        assert_eq!(closing["choices"][0]["delta"], json!({}));
    }
    let text = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let text = if path == CHAT { &choice["delta"]["content"] } else { &choice["text"] };
        text.as_str().unwrap().to_owned()
    };
    (chunks.iter().map(text).collect(), closing["choices"][0]["finish_reason"].clone(), last["usage"].clone())
}

#[tokio::test]
async fn a_stream_says_what_a_plain_answer_says() {
    let texts: [&[u8]; 5] =
        [b"A B C D E F", "h\u{e9}llo \u{1f600} w\u{f6}rld".as_bytes(), b"cut \xf0\x9f\x98", b"bad \xff byte", b""];
    let stops = [json!(null), json!("C D"), json!(["D E F G", "D E"]), json!(["\u{1f600}"]), json!(["zzz", "llo"])];
    for path in [CHAT, COMPLETIONS] {
        for text in texts {
            for stop in &stops {
                let extra = json!({"stop": stop});
                let plain = plain(path, says(text, Finish::Length), &extra).await;
                assert_eq!(plain, streamed(path, says(text, Finish::Length), &extra).await);
                let whole = String::from_utf8_lossy(text).into_owned();
                let stops: Vec<String> = serde_json::from_value(stop.clone())
                    .unwrap_or_else(|_| stop.as_str().map(str::to_owned).into_iter().collect());
                let end = stops.iter().filter_map(|stop| whole.find(stop.as_str())).min();
                assert_eq!(plain.0, whole[..end.unwrap_or(whole.len())]);
                assert_eq!(plain.1, if end.is_some() { "stop" } else { "length" });
            }
        }
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_request_in_the_engine() {
    let mut events = says("The capital is Paris, and", Finish::Length);
    events.pop();
    let fake = Fake::new(Script::Hang(events));
    let answer = post(&app(&fake), COMPLETIONS, &body(COMPLETIONS, &json!({"stop": "Paris"}))).await.json();
    assert_eq!(answer["choices"][0]["text"], "The capital is ");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    // Tokens are counted up to the one that completed the stop string.
    assert_eq!(answer["usage"]["completion_tokens"], "The capital is Paris".len());
    assert_eq!(fake.cancelled(), 1);
}

#[tokio::test]
async fn plain_answers_have_all_of_openai_s_members() {
    let app = app(&Fake::new(Script::Play(says("ok", Finish::Stop))));
    let chat = post(&app, CHAT, &body(CHAT, &json!({}))).await.json();
    assert!(chat["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(chat["object"], "chat.completion");
    assert!(chat["system_fingerprint"].as_str().unwrap().starts_with("pointsman-"));
    let message = json!({"role": "assistant", "content": "ok", "refusal": null, "annotations": []});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(chat["choices"], json!([choice]));
    // Three control tokens and the bytes of "user\nhi", "\n" and "assistant\n".
    let prompt = 3 + 7 + 1 + 10;
    assert_eq!(chat["usage"]["prompt_tokens"], prompt);
    assert_eq!(chat["usage"]["total_tokens"], prompt + 2);
    assert_eq!(chat["usage"]["prompt_tokens_details"], json!({"cached_tokens": 0}));

    let completion = post(&app, COMPLETIONS, &body(COMPLETIONS, &json!({}))).await.json();
    assert!(completion["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(completion["object"], "text_completion");
    assert_eq!(completion["choices"], json!([{"text": "ok", "index": 0, "logprobs": null, "finish_reason": "stop"}]));
}

#[tokio::test]
async fn usage_says_how_much_of_the_prompt_was_cached() {
    let script = || [vec![Event::Started { cached_tokens: 16 }], says("ok", Finish::Stop)].concat();
    for path in [CHAT, COMPLETIONS] {
        let (text, _, usage) = plain(path, script(), &json!({})).await;
        assert_eq!((text.as_str(), &usage["prompt_tokens_details"]), ("ok", &json!({"cached_tokens": 16})));
        assert_eq!(streamed(path, script(), &json!({})).await.2, usage);
    }
}

#[tokio::test]
async fn every_token_has_its_own_chunk_and_usage_only_comes_when_asked_for() {
    let app = app(&Fake::new(Script::Play(says("abcd", Finish::Length))));
    let chunks = post(&app, COMPLETIONS, &body(COMPLETIONS, &json!({"stream": true}))).await.events();
    assert_eq!(chunks.len(), 5);
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(chunks[0]["object"], "text_completion");
}

#[tokio::test]
async fn streams_are_not_to_be_cached_or_buffered() {
    let app = app(&Fake::new(Script::Play(says("a", Finish::Length))));
    let answer = post(&app, CHAT, &body(CHAT, &json!({"stream": true}))).await;
    assert_eq!(answer.headers["cache-control"], "no-cache");
    assert_eq!(answer.headers["x-accel-buffering"], "no");
    assert_eq!(answer.events()[0]["object"], "chat.completion.chunk");
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_an_event_and_then_done() {
    let script = vec![token(b'a'), Event::Done(Finish::Failed("the device is gone".into()))];
    let app = app(&Fake::new(Script::Play(script)));
    let events = post(&app, COMPLETIONS, &body(COMPLETIONS, &json!({"stream": true}))).await.events();
    assert_eq!(events[0]["choices"][0]["text"], "a");
    assert_eq!(events[1]["error"]["message"], "the device is gone");
    assert_eq!(events[1]["error"]["code"], "engine_failed");
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn an_engine_that_lets_go_is_a_failure_too() {
    let app = app(&Fake::new(Script::Play(vec![token(b'a')])));
    let events = post(&app, CHAT, &body(CHAT, &json!({"stream": true}))).await.events();
    assert_eq!(events.last().unwrap()["error"]["type"], "server_error");
    let plain = post(&app, CHAT, &body(CHAT, &json!({}))).await;
    assert_eq!(plain.status, 500);
    plain.error();
}

#[tokio::test]
async fn a_failure_before_the_first_token_of_a_stream_has_a_real_status() {
    for (finish, status) in
        [(Finish::Failed("out of order".into()), 500), (Finish::Rejected(7), 429), (Finish::Cancelled, 503)]
    {
        let app = app(&Fake::new(Script::Play(vec![Event::Done(finish)])));
        for stream in [true, false] {
            let answer = post(&app, CHAT, &body(CHAT, &json!({"stream": stream}))).await;
            assert_eq!(answer.status, status);
            answer.error();
        }
    }
}

#[tokio::test]
async fn absent_and_null_fields_mean_openai_s_defaults() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    for extra in [json!({}), json!({"temperature": null, "max_tokens": null, "stop": null, "n": null, "model": null})] {
        post(&app, COMPLETIONS, &body(COMPLETIONS, &extra)).await;
        let request = fake.last_request();
        assert_eq!(request.max_new_tokens(), 16);
        let raw = request.raw();
        assert_eq!((raw.sampling.temperature, raw.sampling.top_p, raw.sampling.repetition_penalty), (1.0, 1.0, 1.0));
        assert_eq!((raw.sampling.top_k, raw.sampling.min_p, raw.tenant, raw.logprobs), (0, 0.0, 0, None));
        assert_eq!(raw.stop_tokens, [IM_END]);
        assert_eq!(raw.prompt, [u32::from(b'h'), u32::from(b'i')]);
    }
    post(&app, CHAT, &body(CHAT, &json!({}))).await;
    let request = fake.last_request();
    assert_eq!(request.reserve_tokens(), crate::fake::CONTEXT);
}

#[tokio::test]
async fn the_default_of_max_tokens_gives_way_to_the_context() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    for (prompt_tokens, status, max_tokens) in [(112, 200, 16), (120, 200, 8), (127, 200, 1), (128, 400, 1)] {
        let answer = post(&app, COMPLETIONS, &json!({"prompt": "a".repeat(prompt_tokens)})).await;
        assert_eq!(answer.status, status, "{prompt_tokens}");
        assert_eq!(fake.last_request().max_new_tokens(), max_tokens);
    }
}

#[tokio::test]
async fn fields_reach_the_engine() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    let extra = json!({
        "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": -1,
        "frequency_penalty": 1.5, "repetition_penalty": 1.25, "seed": -1, "stop_token_ids": [3], "logit_bias": {"65": -5.5},
        "ignore_eos": true, "min_tokens": 2, "user": "ann",
    });
    assert_eq!(post(&app, CHAT, &body(CHAT, &extra)).await.status, 200);
    let request = fake.last_request();
    let (raw, sampling) = (request.raw(), &request.raw().sampling);
    assert_eq!((request.max_new_tokens(), raw.min_new_tokens), (7, 2));
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (0.5, 0.9, 40, 0.1));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty), (-1.0, 1.5, 1.25));
    assert_eq!((sampling.seed, &sampling.logit_bias[..]), (u64::MAX, &[(65, -5.5)][..]));
    assert_eq!(raw.stop_tokens, [3]);
    assert_ne!(raw.tenant, 0);
}

#[tokio::test]
async fn requests_without_a_seed_get_different_ones() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    let mut seeds = Vec::new();
    for _ in 0..2 {
        post(&app, COMPLETIONS, &body(COMPLETIONS, &json!({}))).await;
        seeds.push(fake.last_request().raw().sampling.seed);
    }
    assert_ne!(seeds[0], seeds[1]);
}

#[tokio::test]
async fn messages_may_be_lists_of_parts_and_assistants_silent() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    let parts = json!([{"type": "text", "text": "Say "}, {"type": "text", "text": "hi"}]);
    for content in [parts, json!("Say hi")] {
        let messages = json!([
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": content},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "user", "content": ""},
        ]);
        assert_eq!(post(&app, CHAT, &json!({"messages": messages})).await.status, 200);
    }
    let requests = fake.requests.lock().unwrap();
    assert_eq!(requests[0].raw().prompt, requests[1].raw().prompt);
}

#[tokio::test]
async fn prompts_come_as_text_tokens_or_a_batch_of_one() {
    let fake = Fake::new(Script::Play(says("", Finish::Stop)));
    let app = app(&fake);
    for prompt in [json!("hi"), json!(["hi"]), json!([104, 105]), json!([[104, 105]]), json!([[104, 105]])] {
        assert_eq!(post(&app, COMPLETIONS, &json!({"prompt": prompt})).await.status, 200);
        assert_eq!(fake.last_request().raw().prompt, [104, 105]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_is_kept_alive_by_comments() {
    use axum::body::Body;
    use axum::http::Request;
    use futures_util::StreamExt;
    use tower::ServiceExt;

    let fake = Fake::new(Script::Hang(vec![]));
    let body = body(CHAT, &json!({"stream": true})).to_string();
    let response = app(&fake).oneshot(Request::post(CHAT).body(Body::from(body)).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut frames = response.into_body().into_data_stream();
    for _ in 0..3 {
        assert_eq!(frames.next().await.unwrap().unwrap(), ": keep-alive\n\n");
    }
    assert_eq!(fake.cancelled(), 0);
    drop(frames);
    assert_eq!(fake.cancelled(), 1);
}
