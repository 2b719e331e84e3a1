//! Log-probs in both of OpenAI's shapes: one entry a token, whatever its text.

use pointsman_engine::output::{Event, Finish};
use serde_json::{Value, json};

use crate::fake::{Fake, Script, app, logprob, post, token, token_with_logprob};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn script(text: &str) -> Vec<Event> {
    let tokens = text.bytes().map(token_with_logprob);
    tokens.chain([Event::Done(Finish::Length)]).collect()
}

#[tokio::test]
async fn chat_has_an_entry_for_every_token_even_of_split_characters() {
    let app = app(&Fake::new(Script::Play(script("a\u{1f600}b"))));
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = json!({"messages": messages, "logprobs": true, "top_logprobs": 2});
    let plain = post(&app, CHAT, &body).await.json();
    let entries = plain["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 6);
    assert_eq!(plain["usage"]["completion_tokens"], 6);
    let first = json!({"token": "a", "logprob": -97.0 / 256.0, "bytes": [97], "top_logprobs": [
        {"token": "a", "logprob": -97.0 / 256.0, "bytes": [97]}, {"token": "?", "logprob": -9999.0, "bytes": [63]}]});
    assert_eq!(entries[0], first);
    assert_eq!(entries[1]["bytes"], json!([0xf0]));
    assert_eq!(entries[1]["token"], "\u{fffd}");

    body["stream"] = json!(true);
    let chunks = post(&app, CHAT, &body).await.events();
    let streamed: Vec<Value> = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(&streamed, entries);
}

#[tokio::test]
async fn a_stop_string_takes_the_entries_of_its_tokens_along() {
    let app = app(&Fake::new(Script::Play(script("abcdef"))));
    let body = json!({"prompt": "hi", "logprobs": 0, "stop": "cd"});
    let plain = post(&app, COMPLETIONS, &body).await.json();
    assert_eq!(plain["choices"][0]["text"], "ab");
    assert_eq!(plain["choices"][0]["logprobs"]["tokens"], json!(["a", "b", "c", "d"]));
    assert_eq!(plain["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn completions_have_the_legacy_shape() {
    let app = app(&Fake::new(Script::Play(script("\u{e9}z"))));
    let body = json!({"prompt": "hi", "logprobs": 1});
    let logprobs = post(&app, COMPLETIONS, &body).await.json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs["tokens"], json!(["bytes:\\xc3", "bytes:\\xa9", "z"]));
    assert_eq!(logprobs["token_logprobs"][2], f64::from(logprob(b'z').chosen));
    assert_eq!(logprobs["top_logprobs"][2], json!({"z": logprob(b'z').chosen, "?": -9999.0}));
    // In characters: both bytes belong to the first one.
    assert_eq!(logprobs["text_offset"], json!([0, 0, 1]));
    assert_eq!(logprobs.as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn echo_repeats_the_prompt_with_its_logprobs() {
    let prompt: Vec<_> = "h\u{e9}y".bytes().enumerate().map(|(at, byte)| (at > 0).then(|| logprob(byte))).collect();
    let mut events = vec![Event::Prompt(prompt)];
    events.extend(script("ab"));
    let fake = Fake::new(Script::Play(events));
    let app = app(&fake);
    // The stop string stands in the prompt, where it stops nothing.
    let mut body = json!({"prompt": "h\u{e9}y", "echo": true, "logprobs": 1, "stop": "y"});
    let plain = post(&app, COMPLETIONS, &body).await.json();
    assert!(fake.last_request().raw().prompt_logprobs);
    let choice = &plain["choices"][0];
    assert_eq!(choice["text"], "h\u{e9}yab");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["h", "bytes:\\xc3", "bytes:\\xa9", "y", "a", "b"]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 2, 3, 4]));
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);

    body["stream"] = json!(true);
    let chunks = post(&app, COMPLETIONS, &body).await.events();
    assert_eq!(chunks[0]["choices"][0]["text"], "h\u{e9}y");
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let joined: Vec<Value> = chunks
            .iter()
            .flat_map(|chunk| chunk["choices"][0]["logprobs"][list].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(&joined, logprobs[list].as_array().unwrap(), "{list}");
    }
}

#[tokio::test]
async fn echo_alone_generates_nothing() {
    let prompt = vec![None, Some(logprob(b'i'))];
    let fake = Fake::new(Script::Hang(vec![Event::Prompt(prompt), token(b'x')]));
    let app = app(&fake);
    for (extra, tokens) in [(json!({"logprobs": 0}), json!(["h", "i"])), (json!({}), Value::Null)] {
        let mut body = json!({"prompt": "hi", "echo": true, "max_tokens": 0});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = post(&app, COMPLETIONS, &body).await.json();
        assert_eq!(answer["choices"][0]["text"], "hi");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        assert_eq!(answer["choices"][0]["logprobs"]["tokens"], tokens);
        assert_eq!(
            answer["usage"],
            json!({"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 0}})
        );
    }
    assert_eq!(fake.cancelled(), 2);
}
