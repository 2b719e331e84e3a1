//! `POST /v1/chat/completions`: messages through the model's chat template, answered by one message.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use pointsman_engine::ids::TokenId;
use pointsman_engine::limits::LOGPROBS_MAX;
use pointsman_engine::output::Logprob;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::params::{Params, ignored};
use super::{Run, run, unix_now};
use crate::answer::{Shape, finite, json};
use crate::error::ApiError;
use crate::generation::{Job, Piece, Reason};
use crate::limits::MESSAGES_MAX;
use crate::log::RequestLog;
use crate::parse::{Fields, read_json};
use crate::state::{ApiState, Model};
use crate::text::{EncodeOptions, Message, RenderOptions, Role};

/// What the body asked for.
struct Ask {
    messages: Vec<Message>,
    render: RenderOptions,
    params: Params,
    ignored: Option<String>,
}

/// Answers the endpoint.
pub(crate) async fn handle(
    State(state): State<ApiState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Result<Response, ApiError> {
    let model = Arc::clone(state.ready_model()?);
    let Ask { messages, render, mut params, ignored } = Ask::parse(&read_json(request).await?, &model)?;
    params.raw.prompt = tokenise(&state, &model, messages, render).await.map_err(ApiError::about_messages)?;
    let shape = Chat { model: Arc::clone(&model), logprobs: params.raw.logprobs.is_some() };
    let job = Job { raw: params.raw, stop: params.stop, prompt_only: false };
    let Params { stream, include_usage, .. } = params;
    let run = run(&state, &model, log, Run { job, stream, include_usage, ignored }, shape);
    run.await.map_err(ApiError::about_messages)
}

impl Ask {
    fn parse(body: &[u8], model: &Model) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        // Without a maximum, an answer may fill the context.
        let mut params = Params::take(&mut fields, model)?;
        params.raw.logprobs = take_logprobs(&mut fields)?;
        fields.refuse("continue_final_message", "not supported by this server")?;
        let render = RenderOptions {
            tools: None,
            add_generation_prompt: fields.take("add_generation_prompt")?.unwrap_or(true),
            extra: fields.take::<Map<String, Value>>("chat_template_kwargs")?.unwrap_or_default(),
            now: unix_now(),
            max_bytes: model.text.tokenizer().max_prompt_bytes(model.info.limits.context_tokens),
        };
        Ok(Self { messages: take_messages(&mut fields)?, render, params, ignored: ignored(&fields) })
    }
}

fn take_logprobs(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let wanted = fields.take("logprobs")?.unwrap_or(false);
    match fields.take::<u32>("top_logprobs")? {
        Some(_) if !wanted => Err(ApiError::invalid("top_logprobs", "top_logprobs: only with \"logprobs\": true")),
        Some(n) if n > LOGPROBS_MAX => {
            Err(ApiError::invalid("top_logprobs", format!("top_logprobs: {n} is more than {LOGPROBS_MAX}")))
        }
        top => Ok(wanted.then_some(top.unwrap_or(0))),
    }
}

#[derive(Deserialize)]
struct WireMessage {
    role: Role,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Value>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a string or an array of content parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    r#type: String,
    text: Option<String>,
}

fn take_messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let wire = fields.take::<Vec<WireMessage>>("messages")?;
    let wire = wire.ok_or_else(|| ApiError::invalid("messages", "messages: is missing"))?;
    match wire.len() {
        0 => Err(ApiError::invalid("messages", "messages: is empty")),
        1..=MESSAGES_MAX => wire.into_iter().enumerate().map(|(at, message)| message.checked(at)).collect(),
        n => Err(ApiError::invalid("messages", format!("messages: {n} are too many; up to {MESSAGES_MAX} are taken"))),
    }
}

impl WireMessage {
    /// `at` is its place in the list.
    fn checked(self, at: usize) -> Result<Message, ApiError> {
        let content = match self.content {
            Some(content) => content.joined(at)?,
            None if self.role == Role::Assistant => String::new(),
            None => {
                let param = format!("messages[{at}].content");
                let message = format!("{param}: only an assistant's message may be without content");
                return Err(ApiError::invalid(param, message));
            }
        };
        let tool_calls = self.tool_calls.map(with_parsed_arguments);
        Ok(Message { role: self.role, content, name: self.name, tool_calls, tool_call_id: self.tool_call_id })
    }
}

impl Content {
    fn joined(self, at: usize) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let mut joined = String::new();
        for (nth, part) in parts.into_iter().enumerate() {
            let param = format!("messages[{at}].content[{nth}]");
            match (part.r#type.as_str(), part.text) {
                ("text", Some(text)) => joined.push_str(&text),
                ("text", None) => return Err(ApiError::invalid(&param, format!("{param}: has no text"))),
                (kind, _) => {
                    let message = format!("{param}: {kind} parts are not supported; this model reads text only");
                    return Err(ApiError::unsupported(param, message));
                }
            }
        }
        Ok(joined)
    }
}

/// Clients send a call's arguments as JSON in a string; templates are written for the object. What does not parse stays.
fn with_parsed_arguments(mut calls: Value) -> Value {
    for call in calls.as_array_mut().into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
        {
            *arguments = parsed;
        }
    }
    calls
}

async fn tokenise(
    state: &ApiState,
    model: &Arc<Model>,
    messages: Vec<Message>,
    render: RenderOptions,
) -> Result<Vec<TokenId>, ApiError> {
    let bytes = messages.iter().map(|message| message.content.len()).sum();
    let model = Arc::clone(model);
    let work = move || {
        let prompt = model.text.template()?.render(&messages, &render)?;
        Ok(model.text.tokenizer().encode(&prompt, EncodeOptions::PROMPT, render.max_bytes)?)
    };
    state.with_text(bytes, work).await
}

/// The shape of a chat's choice.
struct Chat {
    model: Arc<Model>,
    logprobs: bool,
}

#[derive(Serialize)]
struct Choice {
    index: u32,
    message: Answer,
    logprobs: Option<Logprobs>,
    finish_reason: Reason,
}

#[derive(Serialize)]
struct Answer {
    role: &'static str,
    content: String,
    refusal: Option<String>,
    /// Citations of web pages; always empty here, but some clients look for the list.
    annotations: [(); 0],
}

#[derive(Serialize)]
struct Chunk<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<Reason>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

#[derive(Serialize)]
struct Logprobs {
    content: Vec<TokenLogprob>,
    refusal: Option<String>,
}

#[derive(Serialize)]
struct TokenLogprob {
    #[serde(flatten)]
    token: Alternative,
    top_logprobs: Vec<Alternative>,
}

#[derive(Serialize)]
struct Alternative {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl Chat {
    fn logprobs(&self, piece: &Piece) -> Option<Logprobs> {
        let entries = piece.tokens.iter().filter_map(|sent| sent.entry.as_ref());
        let content = entries.map(|(id, logprob)| TokenLogprob {
            token: self.alternative(*id, logprob.chosen),
            top_logprobs: logprob.top.iter().map(|&(id, logprob)| self.alternative(id, logprob)).collect(),
        });
        self.logprobs.then(|| Logprobs { content: content.collect(), refusal: None })
    }

    fn alternative(&self, id: TokenId, logprob: f32) -> Alternative {
        let tokenizer = self.model.text.tokenizer();
        Alternative {
            token: tokenizer.token_text(id),
            logprob: finite(logprob),
            bytes: tokenizer.raw_bytes(id).to_vec(),
        }
    }
}

impl Shape for Chat {
    const ID_PREFIX: &'static str = "chatcmpl";
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";

    fn prompt(&mut self, _: Vec<Option<Logprob>>) {
        // Never asked for here.
    }

    fn opening(&mut self) -> Option<String> {
        let delta = Delta { role: Some("assistant"), content: Some("") };
        Some(json(&Chunk { index: 0, delta, logprobs: None, finish_reason: None }))
    }

    fn chunk(&mut self, piece: &Piece) -> String {
        let delta = Delta { role: None, content: Some(&piece.text) };
        json(&Chunk { index: 0, delta, logprobs: self.logprobs(piece), finish_reason: None })
    }

    fn closing(&mut self, reason: Reason) -> String {
        json(&Chunk { index: 0, delta: Delta::default(), logprobs: None, finish_reason: Some(reason) })
    }

    fn whole(&mut self, piece: &Piece, reason: Reason) -> String {
        let message = Answer { role: "assistant", content: piece.text.clone(), refusal: None, annotations: [] };
        json(&Choice { index: 0, message, logprobs: self.logprobs(piece), finish_reason: reason })
    }
}
