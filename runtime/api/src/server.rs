//! Routes and the layers around them. The integrator calls [`router`] and [`serve`].
//!
//! From the outside in: every request gets an id, a log line and a count, errors of the framework get our shape, and a
//! panic becomes a 500. Health and metrics take no lock that a generation holds, so they answer whatever the load.

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::admin;
use crate::error::{ApiError, Class};
use crate::ids;
use crate::limits::REQUEST_ID_BYTES_MAX;
use crate::log::RequestLog;
use crate::metrics::METRICS_CONTENT_TYPE;
use crate::openai::{chat, completions, models, tokens};
use crate::service::Readiness;
use crate::state::ApiState;

/// Paths that probes and scrapers ask for all the time; they are counted, but not logged.
const QUIET: [&str; 4] = ["/health", "/health/live", "/health/ready", "/metrics"];
const REQUEST_ID: &str = "x-request-id";

/// Which routes a listener offers. Health and metrics are on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routes {
    /// All of them.
    All,
    /// Those of clients.
    Clients,
    /// Those of operators.
    Admin,
}

/// The routes over `state`. The peer's address must be in the request's `ConnectInfo`, as [`serve`] puts it there.
pub fn router(state: ApiState, routes: Routes) -> Router {
    let mut router = Router::new()
        .route("/health", get(ready))
        .route("/health/ready", get(ready))
        .route("/health/live", get(live))
        .route("/metrics", get(metrics));
    if routes != Routes::Admin {
        router = router
            .route("/v1/models", get(models::list))
            .route("/v1/models/{*id}", get(models::one))
            .route("/v1/chat/completions", post(chat::handle))
            .route("/v1/completions", post(completions::handle))
            .route("/tokenize", post(tokens::tokenize))
            .route("/detokenize", post(tokens::detokenize));
    }
    if routes != Routes::Clients {
        router = router.merge(admin::routes(state.clone()));
    }
    router
        .fallback(unknown_route)
        // Bodies are read by `parse`, which has limits of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(state.clone(), observe))
        .with_state(state)
}

/// Serves `router` until `shutdown` completes, then takes no new connection and returns when the last answer is out.
/// A client that does not read can hold it up for ever, so the caller bounds the wait.
///
/// # Errors
/// Those of the listener.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    // A token is a small packet that must not wait for the next one.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(shutdown).await
}

async fn live() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn ready(State(state): State<ApiState>) -> Response {
    let (status, word) = match state.readiness() {
        Readiness::Ready => (StatusCode::OK, "ok"),
        Readiness::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    (status, Json(json!({"status": word}))).into_response()
}

async fn metrics(State(state): State<ApiState>) -> Result<Response, ApiError> {
    let text = state.metrics().text().map_err(|e| ApiError::new(Class::Internal, format!("no metrics: {e}")))?;
    Ok(([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text).into_response())
}

async fn unknown_route(method: Method, request: Request) -> ApiError {
    ApiError::new(Class::NotFound, format!("there is no {method} {}", request.uri().path()))
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let what = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(what = what.unwrap_or("no message"), "a request handler panicked");
    ApiError::new(Class::Internal, "the server failed on this request; its log says more").into_response()
}

/// Id, log line and count of every request.
async fn observe(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("unmatched", MatchedPath::as_str);
    let id = request_id(request.headers());
    let log = (!QUIET.contains(&route)).then(|| Arc::new(RequestLog::new(id.clone(), route.to_owned())));
    if let Some(log) = &log {
        request.extensions_mut().insert(Arc::clone(log));
    }
    let method = request.method().clone();
    let mut response = next.run(request).await;
    if is_bare_error(&response) {
        response = shaped(&method, response.status());
    }
    let status = response.status().as_u16();
    state.metrics().count_http(route, status);
    if let Some(log) = log {
        log.facts().status = Some(status);
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The caller's own id, if it is short and printable; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic()) => {
            id.to_owned()
        }
        _ => format!("req-{:016x}{:016x}", ids::random(), ids::random()),
    }
}

/// The framework's own refusals (a wrong method, a path that is not UTF-8) have no JSON body.
fn is_bare_error(response: &Response) -> bool {
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    !json && (response.status().is_client_error() || response.status().is_server_error())
}

/// The router adds the `allow` header of a 405 later, outside of all layers.
fn shaped(method: &Method, status: StatusCode) -> Response {
    let error = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            ApiError::new(Class::MethodNotAllowed, format!("{method} is not answered here; see the allow header"))
        }
        status if status.is_client_error() => {
            ApiError::new(Class::Malformed, format!("the path or query can not be read ({status})"))
        }
        status => ApiError::new(Class::Internal, format!("the server failed on this request ({status})")),
    };
    error.into_response()
}
