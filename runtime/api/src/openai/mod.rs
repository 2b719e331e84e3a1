//! The OpenAI-compatible endpoints: what their bodies ask for, and the JSON they answer with.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod models;
mod params;
pub(crate) mod tokens;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::HeaderValue;
use axum::response::Response;

use crate::answer::{Envelope, Shape, plain};
use crate::error::{ApiError, Class};
use crate::generation::{Generation, Job};
use crate::log::RequestLog;
use crate::state::{ApiState, Model};
use crate::{ids, sse};

/// Names the fields of the body that had no effect.
const IGNORED_PARAMS: &str = "x-ignored-params";

/// What an endpoint has made of a body.
struct Run {
    job: Job,
    stream: bool,
    include_usage: bool,
    ignored: Option<String>,
}

/// Runs it and answers in the given shape.
async fn run<S: Shape>(
    state: &ApiState,
    model: &Model,
    log: Arc<RequestLog>,
    run: Run,
    shape: S,
) -> Result<Response, ApiError> {
    let Run { job, stream, include_usage, ignored } = run;
    let created = unix_now();
    let generation = Generation::start(state, model, job, log).await?;
    let id = ids::answer(S::ID_PREFIX, generation.request);
    let envelope = Envelope { id, created, model: model.info.id.clone() };
    let mut response = if stream {
        sse::respond(generation, shape, envelope, include_usage).await?
    } else {
        plain(generation, shape, envelope).await?
    };
    if let Some(names) = ignored.and_then(|names| HeaderValue::try_from(names).ok()) {
        response.headers_mut().insert(IGNORED_PARAMS, names);
    }
    Ok(response)
}

/// The answer to a name that is not served.
fn unknown_model(asked: &str, served: Option<&str>) -> ApiError {
    let message = match served {
        Some(served) => format!("the model {asked:?} does not exist here; served is {served:?}"),
        None => format!("the model {asked:?} does not exist here; none is loaded yet"),
    };
    ApiError::new(Class::ModelNotFound, message).about("model")
}

/// Unix time in seconds; 0 on a machine whose clock stands before 1970.
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
