//! What operators and their tools see: health, models, metrics, ids, and the tokenizer's routes.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use pointsman_api::service::Readiness;
use pointsman_api::{Routes, router};
use pointsman_engine::decision::FaultClass;
use pointsman_engine::output::Finish;
use serde_json::json;

use crate::fake::{CONTEXT, Fake, MODEL, Script, app, get, post, says, send, state};

#[tokio::test]
async fn health_tells_loading_ready_and_draining_apart() {
    let fake = Fake::new(Script::Play(says("ok", Finish::Stop)));
    let loading = router(state(&fake, None), Routes::All);
    let ready = app(&fake);
    for (app, readiness, status, word) in [
        (&loading, Readiness::Loading, 503, "loading"),
        // The engine may be ready a moment before the model's texts are handed over.
        (&loading, Readiness::Ready, 503, "loading"),
        (&ready, Readiness::Ready, 200, "ok"),
        (&ready, Readiness::Draining, 503, "draining"),
    ] {
        *fake.readiness.lock().unwrap() = readiness;
        for path in ["/health", "/health/ready"] {
            let answer = get(app, path).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (status, json!({"status": word})));
        }
        assert_eq!(get(app, "/health/live").await.status, 200);
        for path in ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"] {
            let answer = post(app, path, &json!({"prompt": "hi", "tokens": [], "messages": []})).await;
            if status == 503 {
                assert_eq!(answer.status, 503);
                assert!(answer.headers.contains_key("retry-after"));
                assert_eq!(answer.error()["code"], word);
            } else {
                assert_ne!(answer.status, 503);
            }
        }
    }
}

#[tokio::test]
async fn the_served_model_is_listed_once_loaded() {
    let fake = Fake::new(Script::Play(vec![]));
    assert_eq!(
        get(&router(state(&fake, None), Routes::All), "/v1/models").await.json(),
        json!({"object": "list", "data": []})
    );
    let app = app(&fake);
    let list = get(&app, "/v1/models").await.json();
    assert_eq!(list["data"][0]["id"], MODEL);
    assert_eq!(list["data"][0]["object"], "model");
    assert_eq!(get(&app, "/v1/models/tiny").await.json(), list["data"][0]);
    let unknown = get(&app, "/v1/models/org/other").await;
    assert_eq!((unknown.status.as_u16(), unknown.error()["code"].as_str()), (404, Some("model_not_found")));
}

/// Samples by name and labels, after checking every line of the page.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut families = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let base = name.split('{').next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| base.strip_suffix(suffix));
            assert!(of_histogram.chain([base]).any(|family| families.contains_key(family)), "{line} has no family");
            assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} comes twice");
        }
    }
    samples
}

#[tokio::test]
async fn metrics_have_every_family() {
    let app = app(&Fake::new(Script::Play(says("abc", Finish::Stop))));
    post(&app, "/v1/completions", &json!({"prompt": "hi"})).await;
    get(&app, "/nowhere").await;
    let answer = get(&app, "/metrics").await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let samples = samples(answer.text());
    let mut expected = vec![
        ("pointsman_requests_running{model=\"tiny\"}".to_owned(), 2.0),
        ("pointsman_requests_waiting{model=\"tiny\"}".to_owned(), 1.0),
        ("pointsman_prompt_tokens_total{model=\"tiny\"}".to_owned(), 40.0),
        ("pointsman_generated_tokens_total{model=\"tiny\"}".to_owned(), 0.0),
        ("pointsman_prefix_queries_tokens_total{model=\"tiny\"}".to_owned(), 39.0),
        ("pointsman_prefix_hits_tokens_total{model=\"tiny\"}".to_owned(), 16.0),
        ("pointsman_prefix_evicted_blocks_total{model=\"tiny\"}".to_owned(), 5.0),
        ("pointsman_starved_total{model=\"tiny\"}".to_owned(), 0.0),
        ("pointsman_passed_over_total{model=\"tiny\"}".to_owned(), 0.0),
        ("pointsman_requests_accepted_total{model=\"tiny\"}".to_owned(), 0.0),
        ("pointsman_time_to_first_token_seconds_count{model=\"tiny\"}".to_owned(), 1.0),
        ("pointsman_inter_token_seconds_count{model=\"tiny\"}".to_owned(), 2.0),
        ("pointsman_request_seconds_count{model=\"tiny\"}".to_owned(), 1.0),
        ("pointsman_http_requests_total{route=\"/v1/completions\",status=\"200\"}".to_owned(), 1.0),
        ("pointsman_http_requests_total{route=\"unmatched\",status=\"404\"}".to_owned(), 1.0),
        ("pointsman_build_info{device=\"cpu\"}".to_owned(), 1.0),
    ];
    for slot in ["route", "batch", "cache"] {
        expected.push((format!("pointsman_decisions_total{{slot=\"{slot}\",model=\"tiny\"}}"), 0.0));
        for class in FaultClass::ALL {
            let labels = format!("slot=\"{slot}\",class=\"{}\",model=\"tiny\"", class.name());
            expected.push((format!("pointsman_policy_fallbacks_total{{{labels}}}"), 0.0));
        }
    }
    for outcome in ["stop", "length", "cancelled", "failed", "rejected"] {
        expected.push((format!("pointsman_requests_total{{outcome=\"{outcome}\",model=\"tiny\"}}"), 0.0));
    }
    for chain in 0..2 {
        for (name, value) in [
            ("chain_jobs", 2.0),
            ("chain_jobs_max", 8.0),
            ("kv_blocks_used", 3.0),
            ("kv_blocks_idle", 4.0),
            ("kv_blocks_total", 64.0),
            ("chain_steps_total", 0.0),
            ("chain_tokens_total", 0.0),
            ("chain_dispatched_total", 0.0),
        ] {
            expected.push((format!("pointsman_{name}{{chain=\"{chain}\",model=\"tiny\"}}"), value));
        }
    }
    for (name, value) in expected {
        assert_eq!(samples.get(&name), Some(&value), "{name}\n{}", answer.text());
    }
}

#[tokio::test]
async fn request_ids_are_echoed_if_sane_and_made_otherwise() {
    let app = app(&Fake::new(Script::Play(vec![])));
    let with = |id: &str| Request::get("/health").header("x-request-id", id).body(Body::empty()).unwrap();
    assert_eq!(send(&app, with("mine-1")).await.headers["x-request-id"], "mine-1");
    for odd in ["", "two words", &"x".repeat(200)] {
        let made = send(&app, with(odd)).await.headers["x-request-id"].clone();
        assert!(made.to_str().unwrap().starts_with("req-"), "{odd}");
    }
}

#[tokio::test]
async fn text_goes_to_tokens_and_back() {
    let app = app(&Fake::new(Script::Play(vec![])));
    for field in ["content", "prompt"] {
        let answer = post(&app, "/tokenize", &json!({field: "h\u{e9}"})).await.json();
        assert_eq!(answer, json!({"count": 3, "tokens": [104, 195, 169], "max_model_len": CONTEXT}));
    }
    let answer = post(&app, "/detokenize", &json!({"tokens": [104, 195, 169]})).await.json();
    assert_eq!(answer, json!({"content": "h\u{e9}", "prompt": "h\u{e9}"}));
    // Longer than the context, and long enough to be done on another thread.
    let answer = post(&app, "/tokenize", &json!({"content": "a b ".repeat(5000)})).await.json();
    assert_eq!(answer["count"], 20_000);
}
