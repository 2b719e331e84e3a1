//! `POST /tokenize` and `POST /detokenize`, with the field names of both llama.cpp and vLLM.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use pointsman_engine::ids::TokenId;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::limits::TOKENIZE_BYTES_MAX;
use crate::parse::{Fields, read_json};
use crate::state::ApiState;
use crate::text::EncodeOptions;

/// `{"content" or "prompt", "add_special"?}` to `{"tokens", "count", "max_model_len"}`. The text may be longer than the
/// context, since nothing is run.
pub(crate) async fn tokenize(State(state): State<ApiState>, request: Request) -> Result<Json<Value>, ApiError> {
    let model = Arc::clone(state.ready_model()?);
    let body = read_json(request).await?;
    let mut fields = Fields::parse(&body)?;
    let add_special = fields.take("add_special")?.unwrap_or(true);
    let text: String = match (fields.take("content")?, fields.take("prompt")?) {
        (Some(text), None) | (None, Some(text)) => text,
        _ => return Err(ApiError::invalid("content", "content: send the text as either content or prompt")),
    };
    let tokenizer = Arc::clone(model.text.tokenizer());
    let options = EncodeOptions { add_special, ..EncodeOptions::PROMPT };
    let encode = move || Ok(tokenizer.encode(&text, options, TOKENIZE_BYTES_MAX)?);
    let tokens = state.with_text(body.len(), encode).await?;
    let max_model_len = model.info.limits.context_tokens;
    Ok(Json(json!({"count": tokens.len(), "tokens": tokens, "max_model_len": max_model_len})))
}

/// `{"tokens"}` to `{"content", "prompt"}`, both the text.
pub(crate) async fn detokenize(State(state): State<ApiState>, request: Request) -> Result<Json<Value>, ApiError> {
    let model = Arc::clone(state.ready_model()?);
    let body = read_json(request).await?;
    let mut fields = Fields::parse(&body)?;
    let tokens = fields.take::<Vec<TokenId>>("tokens")?;
    let tokens = tokens.ok_or_else(|| ApiError::invalid("tokens", "tokens: is missing"))?;
    let tokenizer = Arc::clone(model.text.tokenizer());
    let text = state.with_text(body.len(), move || Ok(tokenizer.decode(&tokens, true)?)).await?;
    Ok(Json(json!({"content": text, "prompt": text})))
}
