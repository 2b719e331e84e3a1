//! `/admin/v1`: who decides. Guarded: see [`guard`].
//!
//! Slots carry their generation as `ETag`; a change with `If-Match` happens only if that is still the generation, so two
//! operators can not undo each other's work unseen.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};

use crate::error::{ApiError, Class};
use crate::ids;
use crate::limits::WASM_BYTES_MAX;
use crate::parse::{read_body, read_json};
use crate::service::{AuditEntry, DecisionInfo, PolicyListing, SlotState, SwapError};
use crate::state::ApiState;
use swap::{named, uploaded};

mod swap;

/// The admin routes behind their guard.
pub(crate) fn routes(state: ApiState) -> Router<ApiState> {
    Router::new()
        .route("/admin/v1/policies", get(list))
        .route("/admin/v1/slots/{slot}", get(show).put(swap).delete(eject))
        .route("/admin/v1/slots/{slot}/rollback", post(rollback))
        .route("/admin/v1/slots/{slot}/promote", post(promote))
        .route("/admin/v1/slots/{slot}/shadow", delete(end_shadow))
        .route("/admin/v1/slots/{slot}/log", get(log))
        .route("/admin/v1/slots/{slot}/state", post(dump))
        .route("/admin/v1/quarantine/{digest}", delete(clear))
        .route("/admin/v1/decisions/{request}", get(explain))
        .route("/admin/v1/audit", get(audit))
        .route_layer(from_fn_with_state(state, guard))
}

/// With a token configured, the caller must show it. Without one, only processes on this machine are let in, and a
/// browser on this machine must not be made a tool of a foreign page: a page's requests carry its `Origin`, and a name
/// that was rebound to 127.0.0.1 (or a proxy in front) shows in `Host`.
async fn guard(
    State(state): State<ApiState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    match state.admin_token() {
        Some(token) => {
            if !shows_token(request.headers(), token) {
                let message = "this route needs the admin token: send it as `Authorization: Bearer ...`";
                return Err(ApiError::new(Class::Unauthenticated, message));
            }
        }
        None => local_only(peer.ip(), request.headers(), request.uri())
            .map_err(|why| ApiError::new(Class::Forbidden, format!("admin routes are closed: {why}")))?,
    }
    Ok(next.run(request).await)
}

fn local_only(peer: IpAddr, headers: &HeaderMap, uri: &Uri) -> Result<(), &'static str> {
    if !peer.to_canonical().is_loopback() {
        return Err("without an admin token, only this machine may use them");
    }
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().ok(),
        None => uri.authority().map(|authority| authority.as_str()),
    };
    let Some(host) = host.filter(|host| is_loopback_name(host)) else {
        return Err("without an admin token, they must be asked for as localhost");
    };
    match headers.get(header::ORIGIN).map(HeaderValue::to_str) {
        None => Ok(()),
        Some(Ok(origin)) if origin.strip_prefix("http://") == Some(host) => Ok(()),
        Some(_) => Err("the request comes from a page of another site"),
    }
}

/// Whether `host`, with or without a port, means this machine by its spelling alone.
fn is_loopback_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Compares in a time that depends on the lengths alone.
fn shows_token(headers: &HeaderMap, token: &str) -> bool {
    let shown = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let shown = shown.strip_prefix(b"Bearer ").unwrap_or_default();
    let differing = shown.iter().zip(token.as_bytes()).fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    shown.len() == token.len() && differing == 0 && !token.is_empty()
}

async fn list(State(state): State<ApiState>) -> Json<PolicyListing> {
    Json(state.admin().list())
}

async fn show(State(state): State<ApiState>, Path(slot): Path<String>) -> Result<Response, ApiError> {
    let mut slots = state.admin().list().slots.into_iter();
    match slots.find(|s| s.slot == slot) {
        Some(found) => Ok(slot_response(found)),
        None => Err(ApiError::new(Class::NotFound, format!("there is no slot {slot:?}"))),
    }
}

async fn swap(
    State(state): State<ApiState>,
    Path(slot): Path<String>,
    uri: Uri,
    request: Request,
) -> Result<Response, ApiError> {
    let expected = if_match(request.headers())?;
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let swap = if content_type.is_some_and(|kind| kind.eq_ignore_ascii_case("application/wasm")) {
        let Query(query) = Query::<BTreeMap<String, String>>::try_from_uri(&uri)
            .map_err(|_| ApiError::new(Class::Malformed, "the query string can not be read"))?;
        let component = read_body(request, WASM_BYTES_MAX).await?;
        uploaded(component.into(), query)?
    } else {
        named(&read_json(request).await?)?
    };
    answer(state.admin().swap(slot, swap, expected).await)
}

async fn rollback(
    State(state): State<ApiState>,
    Path(slot): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expected = if_match(&headers)?;
    answer(state.admin().rollback(slot, expected).await)
}

async fn promote(
    State(state): State<ApiState>,
    Path(slot): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expected = if_match(&headers)?;
    answer(state.admin().promote(slot, expected).await)
}

async fn end_shadow(State(state): State<ApiState>, Path(slot): Path<String>) -> Result<Response, ApiError> {
    answer(state.admin().end_shadow(slot).await)
}

async fn log(State(state): State<ApiState>, Path(slot): Path<String>) -> Result<Response, ApiError> {
    let log = state.admin().log(slot).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], log).into_response())
}

async fn dump(State(state): State<ApiState>, Path(slot): Path<String>) -> Result<Response, ApiError> {
    // What a policy says is text of its own making: never a page.
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], state.admin().dump(slot).await?).into_response())
}

async fn clear(State(state): State<ApiState>, Path(digest): Path<String>) -> Result<Json<PolicyListing>, ApiError> {
    state.admin().clear(&digest)?;
    Ok(Json(state.admin().list()))
}

async fn explain(State(state): State<ApiState>, Path(request): Path<String>) -> Result<Json<DecisionInfo>, ApiError> {
    let unknown = || {
        let what = "name a request by the `id` of its answer, such as chatcmpl-…, or by the engine's number";
        ApiError::new(Class::Malformed, format!("{request:?} is no request: {what}"))
    };
    let number = ids::request_of(&request).ok_or_else(unknown)?;
    Ok(Json(state.admin().explain(number).await?))
}

async fn audit(State(state): State<ApiState>) -> Json<Vec<AuditEntry>> {
    Json(state.admin().audit())
}

async fn eject(
    State(state): State<ApiState>,
    Path(slot): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expected = if_match(&headers)?;
    answer(state.admin().eject(slot, expected).await)
}

fn answer(outcome: Result<SlotState, SwapError>) -> Result<Response, ApiError> {
    match outcome {
        Ok(state) => Ok(slot_response(state)),
        Err(SwapError::Conflict(generation)) => {
            Ok((etag(generation), ApiError::from(SwapError::Conflict(generation))).into_response())
        }
        Err(other) => Err(other.into()),
    }
}

fn slot_response(state: SlotState) -> Response {
    (etag(state.generation), Json(state)).into_response()
}

fn etag(generation: u64) -> [(header::HeaderName, String); 1] {
    [(header::ETAG, format!("\"{generation}\""))]
}

/// The generation that the caller saw; none if it does not say, or says `*`.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    if value == "*" {
        return Ok(None);
    }
    let generation = value.to_str().ok().and_then(|text| text.trim().trim_matches('"').parse().ok());
    let wrong = || ApiError::new(Class::Malformed, "If-Match must be a slot's ETag, such as \"3\", or *");
    generation.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::is_loopback_name;

    #[test]
    fn loopback_names_are_known_by_spelling() {
        for name in ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:8000"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["example.org", "localhost.example.org", "10.0.0.1", "0.0.0.0", "[::2]:1", "user@localhost:1:2", ""]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
