//! From a running request to JSON: what both endpoints share. An endpoint gives the [`Shape`] of a choice.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use pointsman_engine::output::Logprob;
use serde::Serialize;

use crate::error::ApiError;
use crate::generation::{Generation, Piece, Reason, Step, Usage};

/// How an endpoint writes a choice. Every method returns the JSON of one choice object.
pub(crate) trait Shape: Send + 'static {
    /// What the answer's id begins with.
    const ID_PREFIX: &'static str;
    /// The `object` of a plain answer.
    const OBJECT: &'static str;
    /// The `object` of a chunk.
    const CHUNK_OBJECT: &'static str;

    /// Remembers the log-probs of the prompt. Called first, if at all.
    fn prompt(&mut self, logprobs: Vec<Option<Logprob>>);
    /// The chunk before the first token, if the endpoint has one.
    fn opening(&mut self) -> Option<String>;
    /// A chunk of one piece.
    fn chunk(&mut self, piece: &Piece) -> String;
    /// The chunk that says why it ended.
    fn closing(&mut self, reason: Reason) -> String;
    /// The whole answer; `piece` is all of it.
    fn whole(&mut self, piece: &Piece, reason: Reason) -> String;
}

/// What all objects of one answer have in common.
pub(crate) struct Envelope {
    /// `chatcmpl-…` or `cmpl-…`.
    pub(crate) id: String,
    /// Unix time of the request, in seconds.
    pub(crate) created: u64,
    /// Name of the model.
    pub(crate) model: String,
}

impl Envelope {
    /// The object's JSON up to and including the bracket that opens its choices.
    pub(crate) fn head(&self, object: &str) -> String {
        #[derive(Serialize)]
        struct Head<'a> {
            id: &'a str,
            object: &'a str,
            created: u64,
            model: &'a str,
            system_fingerprint: &'a str,
        }
        let system_fingerprint = concat!("pointsman-", env!("CARGO_PKG_VERSION"));
        let Self { id, created, model } = self;
        let mut head = json(&Head { id, object, created: *created, model, system_fingerprint });
        head.pop();
        head.push_str(",\"choices\":[");
        head
    }
}

/// Waits for the end and answers with one object.
pub(crate) async fn plain<S: Shape>(
    mut generation: Generation,
    mut shape: S,
    envelope: Envelope,
) -> Result<Response, ApiError> {
    let mut whole = Piece { text: String::new(), tokens: Vec::new(), stopped: false };
    let reason = loop {
        let (piece, reason) = match generation.next().await {
            Step::Prompt(logprobs) => {
                shape.prompt(logprobs);
                continue;
            }
            Step::Token(piece) => (piece, None),
            Step::End(piece, reason) => (piece, Some(reason)),
            Step::Failed(error) => return Err(error),
        };
        whole.text.push_str(&piece.text);
        whole.tokens.extend(piece.tokens);
        if let Some(reason) = reason {
            break reason;
        }
    };
    let mut body = envelope.head(S::OBJECT);
    body.push_str(&shape.whole(&whole, reason));
    body.push_str("],\"usage\":");
    body.push_str(&usage_json(generation.usage()));
    body.push('}');
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// OpenAI's usage object.
pub(crate) fn usage_json(usage: Usage) -> String {
    let Usage { prompt_tokens, cached_tokens, output_tokens } = usage;
    let total = u64::from(prompt_tokens) + u64::from(output_tokens);
    format!(
        "{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{output_tokens},\"total_tokens\":{total},\
         \"prompt_tokens_details\":{{\"cached_tokens\":{cached_tokens}}}}}"
    )
}

/// JSON of our own wire types: structs of strings, numbers and lists, which can not fail to be written.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// JSON has no infinity; a probability of zero shows as this.
pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}
