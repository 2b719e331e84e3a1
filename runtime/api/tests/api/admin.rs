//! The admin routes: who gets in, and what they do.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use pointsman_api::{Routes, router};
use serde_json::{Value, json};

use crate::fake::{Answer, Fake, Script, get, send, state};

const SLOT: &str = "/admin/v1/slots/route";

fn server(token: Option<&str>) -> Router {
    let fake: Arc<Fake> = Fake::new(Script::Play(vec![]));
    // Policies can be changed while the model is being loaded.
    router(state(&fake, token), Routes::All)
}

async fn call(app: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", "127.0.0.1:8000");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(app, request.body(body.into()).unwrap()).await
}

async fn from(app: &Router, peer: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(SLOT).extension(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(app, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn operators_may_have_a_listener_of_their_own() {
    let fake = Fake::new(Script::Play(Vec::new()));
    let (clients, admin) = (Routes::Clients, Routes::Admin);
    for (routes, path, status) in [
        (clients, "/v1/models", 200),
        (clients, "/admin/v1/policies", 404),
        (admin, "/v1/models", 404),
        (admin, "/admin/v1/policies", 200),
        (clients, "/metrics", 200),
        (admin, "/health/live", 200),
    ] {
        assert_eq!(get(&router(state(&fake, None), routes), path).await.status, status, "{routes:?} {path}");
    }
}

#[tokio::test]
async fn without_a_token_only_this_machine_gets_in() {
    let app = server(None);
    let local = ("host", "localhost:8000");
    for peer in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(from(&app, peer, &[local]).await.status, 200, "{peer}");
    }
    let refused: [(&str, &[(&str, &str)]); 7] = [
        ("10.1.2.3:1", &[local]),
        ("[2001:db8::1]:1", &[local]),
        ("127.0.0.1:1", &[]),
        ("127.0.0.1:1", &[("host", "rebound.example.org")]),
        ("127.0.0.1:1", &[local, ("origin", "https://example.org")]),
        ("127.0.0.1:1", &[local, ("origin", "null")]),
        ("127.0.0.1:1", &[local, ("origin", "http://localhost:9000")]),
    ];
    for (peer, headers) in refused {
        let answer = from(&app, peer, headers).await;
        assert_eq!(answer.status, 403, "{peer} {headers:?}");
        assert_eq!(answer.error()["type"], "permission_error");
    }
    // The server's own page may.
    assert_eq!(from(&app, "127.0.0.1:1", &[local, ("origin", "http://localhost:8000")]).await.status, 200);
}

#[tokio::test]
async fn with_a_token_everybody_needs_it() {
    let app = server(Some("secret"));
    for headers in [&[][..], &[("authorization", "Bearer wrong!")], &[("authorization", "secret")]] {
        let answer = from(&app, "127.0.0.1:1", headers).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert_eq!(answer.error()["type"], "authentication_error");
    }
    let shown = [("authorization", "Bearer secret"), ("host", "public.example.org")];
    assert_eq!(from(&app, "10.1.2.3:1", &shown).await.status, 200);
    assert_eq!(from(&server(Some("")), "127.0.0.1:1", &[("authorization", "Bearer ")]).await.status, 401);
}

#[tokio::test]
async fn every_admin_route_is_guarded() {
    let app = server(Some("secret"));
    for (method, path) in [
        ("GET", "/admin/v1/policies"),
        ("GET", SLOT),
        ("PUT", SLOT),
        ("DELETE", SLOT),
        ("POST", "/admin/v1/slots/route/rollback"),
    ] {
        assert_eq!(call(&app, method, path, &[], "{}").await.status, 401, "{method} {path}");
    }
}

#[tokio::test]
async fn a_swap_by_name_with_config_rolls_back_and_ejects() {
    let app = server(None);
    assert_eq!(get(&app, "/admin/v1/policies").await.json()["slots"][0]["active"], Value::Null);
    let swap = call(&app, "PUT", SLOT, &[], r#"{"policy":"route-jsq","config":{"k": 1}}"#).await;
    assert_eq!(swap.status, 200);
    assert_eq!(swap.headers["etag"], "\"1\"");
    assert_eq!(swap.json()["active"]["name"], "route-jsq");
    // The fake reports the config where it has room for a text.
    assert_eq!(swap.json()["active"]["version"], r#"{"k": 1}"#);
    call(&app, "PUT", SLOT, &[], r#"{"policy":"route-round-robin"}"#).await;
    let back = call(&app, "POST", "/admin/v1/slots/route/rollback", &[], "").await.json();
    assert_eq!((back["active"]["name"].as_str(), back["generation"].as_u64()), (Some("route-jsq"), Some(3)));
    let ejected = call(&app, "DELETE", SLOT, &[], "").await.json();
    assert_eq!(ejected["active"], Value::Null);
}

#[tokio::test]
async fn a_component_is_uploaded_with_the_swap() {
    let app = server(None);
    let wasm = [("content-type", "application/wasm")];
    let swap = call(&app, "PUT", &format!("{SLOT}?config=%7B%7D"), &wasm, "\0asm...").await;
    assert_eq!(swap.json()["active"]["name"], "uploaded");
    assert_eq!(swap.json()["active"]["version"], "{}");
    let refused = call(&app, "PUT", SLOT, &wasm, "ELF").await;
    assert_eq!((refused.status.as_u16(), refused.error()["code"].as_str()), (422, Some("policy_refused")));
    let large = call(&app, "PUT", SLOT, &wasm, vec![0; (2 << 20) + 1]).await;
    assert_eq!(large.status, 413);
    large.error();
}

#[tokio::test]
async fn options_have_the_same_names_in_a_body_and_in_a_query() {
    let app = server(None);
    let body = json!({
        "policy": "route-jsq", "mode": "trial", "percent": 2.5, "rehearse": false, "guard_faults": false,
        "slo_margin_percent": 20, "slo_requests": 100, "promote": true,
    });
    let named = call(&app, "PUT", SLOT, &[], body.to_string()).await.json()["active"]["version"].clone();
    let query =
        "mode=trial&percent=2.5&rehearse=false&guard_faults=false&slo_margin_percent=20&slo_requests=100&promote=true";
    let wasm = [("content-type", "application/wasm")];
    let sent = call(&app, "PUT", &format!("{SLOT}?{query}"), &wasm, "\0asm").await.json()["active"]["version"].clone();
    assert_eq!(named, sent);
    let told = named.as_str().unwrap();
    for words in [
        "Trial(250)",
        "rehearse: false",
        "guard_faults: false",
        "slo_margin: 0.2",
        "slo_requests: 100",
        "promote: true",
    ] {
        assert!(told.contains(words), "{words} is not in {told}");
    }
    for (body, param) in [
        (json!({ "policy": "route-jsq", "mode": "sideways" }), "mode"),
        (json!({ "policy": "route-jsq", "percent": 5 }), "percent"),
        (json!({ "policy": "route-jsq", "mode": "trial", "percent": 0 }), "percent"),
        (json!({ "policy": "route-jsq", "mode": "trial", "percent": 101 }), "percent"),
        (json!({ "policy": "route-jsq", "slo_margin_percent": -1 }), "slo_margin_percent"),
        (json!({ "policy": "route-jsq", "slo_requests": 1 }), "slo_requests"),
        (json!({ "policy": "route-jsq", "rehearse": "yes" }), "rehearse"),
        (json!({ "policy": "route-jsq", "mode": "trial", "percent": 100, "promote": true }), "promote"),
    ] {
        let refused = call(&app, "PUT", SLOT, &[], body.to_string()).await;
        assert_eq!((refused.status.as_u16(), refused.error()["param"].as_str()), (400, Some(param)), "{body}");
    }
    for query in ["mode=trial&percent=many", "mod=trial", "mode=trial&percent=NaN"] {
        assert_eq!(call(&app, "PUT", &format!("{SLOT}?{query}"), &wasm, "\0asm").await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn decisions_are_found_by_number() {
    let app = server(None);
    let told = get(&app, "/admin/v1/decisions/7").await;
    assert_eq!((told.status.as_u16(), &told.json()["decision"]), (200, &json!("chain 0")));
    // An id of another process stands for no request here.
    assert_eq!(get(&app, "/admin/v1/decisions/chatcmpl-00000000000000ff0000000000000007").await.status, 404);
    assert_eq!(get(&app, "/admin/v1/decisions/8").await.status, 404);
    assert_eq!(get(&app, "/admin/v1/decisions/nonsense").await.status, 400);
}

#[tokio::test]
async fn a_record_is_cleared_by_digest() {
    let app = server(None);
    assert_eq!(call(&app, "DELETE", "/admin/v1/quarantine/sha256:00", &[], "").await.status, 200);
    assert_eq!(call(&app, "DELETE", "/admin/v1/quarantine/sha256:01", &[], "").await.status, 404);
}

#[tokio::test]
async fn if_match_guards_against_a_lost_update() {
    let app = server(None);
    let body = r#"{"policy":"route-jsq"}"#;
    assert_eq!(call(&app, "PUT", SLOT, &[("if-match", "\"0\"")], body).await.status, 200);
    let stale = call(&app, "PUT", SLOT, &[("if-match", "\"0\"")], body).await;
    assert_eq!(stale.status, 412);
    assert_eq!(stale.headers["etag"], "\"1\"");
    assert!(stale.error()["message"].as_str().unwrap().contains("generation 1"));
    assert_eq!(call(&app, "DELETE", SLOT, &[("if-match", "\"9\"")], "").await.status, 412);
    assert_eq!(call(&app, "DELETE", SLOT, &[("if-match", "*")], "").await.status, 200);
    assert_eq!(call(&app, "DELETE", SLOT, &[("if-match", "new")], "").await.status, 400);
}

#[tokio::test]
async fn unknown_slots_policies_and_fields_are_named() {
    let app = server(None);
    for (method, path, body, status) in [
        ("GET", "/admin/v1/slots/cache", "", 404),
        ("DELETE", "/admin/v1/slots/cache", "", 404),
        ("PUT", SLOT, r#"{"policy":"nope"}"#, 404),
        ("POST", "/admin/v1/slots/route/rollback", "", 404),
        ("PUT", SLOT, r#"{"policy":"route-jsq","confg":{}}"#, 400),
        ("PUT", SLOT, r"{}", 400),
        ("PUT", SLOT, "not json", 400),
    ] {
        let answer = call(&app, method, path, &[], body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}");
        answer.error();
    }
}
