//! `GET /v1/models` and `GET /v1/models/{id}`: the one model that is served, an empty list while it is being loaded.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::unknown_model;
use crate::error::ApiError;
use crate::service::ModelInfo;
use crate::state::ApiState;

/// The list.
pub(crate) async fn list(State(state): State<ApiState>) -> Json<Value> {
    let data: Vec<Value> = state.model().map(|model| entry(&model.info)).into_iter().collect();
    Json(json!({"object": "list", "data": data}))
}

/// One entry of it. A name may hold slashes.
pub(crate) async fn one(State(state): State<ApiState>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    match state.model() {
        Some(model) if model.info.id == id => Ok(Json(entry(&model.info))),
        other => Err(unknown_model(&id, other.map(|model| model.info.id.as_str()))),
    }
}

fn entry(info: &ModelInfo) -> Value {
    json!({
        "id": info.id,
        "object": "model",
        "created": info.created,
        "owned_by": "pointsman",
        // Not OpenAI's, but what clients of other servers look for.
        "max_model_len": info.limits.context_tokens,
    })
}
