//! `POST /v1/completions`: a prompt as text or token ids, continued.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use pointsman_engine::ids::TokenId;
use pointsman_engine::output::Logprob;
use serde::{Deserialize, Serialize};

use super::params::{Params, ignored};
use super::{Run, run};
use crate::answer::{Shape, finite, json};
use crate::error::ApiError;
use crate::generation::{Job, Piece, Reason};
use crate::log::RequestLog;
use crate::parse::{Fields, read_json};
use crate::state::{ApiState, Model};
use crate::text::EncodeOptions;

/// New tokens when `max_tokens` is absent, as OpenAI has it; fewer when the context ends before.
const MAX_TOKENS_DEFAULT: u32 = 16;
/// OpenAI's limit for this endpoint.
const LOGPROBS_MAX: u32 = 5;

/// What the body asked for.
struct Ask {
    prompt: Prompt,
    params: Params,
    echo: bool,
    ignored: Option<String>,
}

enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

/// Answers the endpoint.
pub(crate) async fn handle(
    State(state): State<ApiState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Result<Response, ApiError> {
    let model = Arc::clone(state.ready_model()?);
    let Ask { prompt, mut params, echo, ignored } = Ask::parse(&read_json(request).await?, &model)?;
    let (text, tokens) = tokenise(&state, &model, prompt, echo).await?;
    params.raw.prompt.clone_from(&tokens);
    let room = (model.info.limits.context_tokens as usize).saturating_sub(tokens.len());
    let max_tokens = params.raw.max_new_tokens.unwrap_or(MAX_TOKENS_DEFAULT.min(room as u32).max(1));
    // The engine makes at least one token; with `max_tokens` 0 it is not waited for.
    let prompt_only = max_tokens == 0;
    params.raw.max_new_tokens = Some(max_tokens.max(1));
    params.raw.prompt_logprobs = echo && params.raw.logprobs.is_some();
    let logprobs = params.raw.logprobs.is_some().then(Logprobs::default);
    let shape = Completion { model: Arc::clone(&model), echo: echo.then_some((text, tokens)), logprobs };
    let job = Job { raw: params.raw, stop: params.stop, prompt_only };
    let Params { stream, include_usage, .. } = params;
    run(&state, &model, log, Run { job, stream, include_usage, ignored }, shape).await
}

impl Ask {
    fn parse(body: &[u8], model: &Model) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let mut params = Params::take(&mut fields, model)?;
        params.raw.logprobs = fields.take("logprobs")?;
        if params.raw.logprobs.is_some_and(|n| n > LOGPROBS_MAX) {
            return Err(ApiError::invalid("logprobs", format!("logprobs: at most {LOGPROBS_MAX}")));
        }
        let echo = fields.take("echo")?.unwrap_or(false);
        if params.raw.max_new_tokens == Some(0) && !echo {
            return Err(ApiError::invalid("max_tokens", "max_tokens: must be at least 1; 0 is only for echo"));
        }
        Ok(Self { prompt: Prompt::take(&mut fields)?, params, echo, ignored: ignored(&fields) })
    }
}

impl Prompt {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let invalid = |message| ApiError::invalid("prompt", message);
        match fields.first_byte("prompt") {
            None | Some(b'n') => Err(invalid("prompt: is missing")),
            Some(b'"') => Ok(Self::Text(fields.take("prompt")?.unwrap_or_default())),
            Some(b'[') => match fields.first_byte_inside("prompt") {
                None => Err(invalid("prompt: is empty")),
                Some(b'"') => take_one(fields).map(Self::Text),
                Some(b'[') => take_one(fields).map(Self::Tokens),
                Some(_) => Ok(Self::Tokens(fields.take("prompt")?.unwrap_or_default())),
            },
            Some(_) => Err(invalid("prompt: must be a string, an array of token ids, or an array of one of these")),
        }
    }
}

/// A batch of one.
fn take_one<'a, T: Deserialize<'a>>(fields: &mut Fields<'a>) -> Result<T, ApiError> {
    let mut prompts = fields.take::<Vec<T>>("prompt")?.unwrap_or_default();
    match (prompts.pop(), prompts.is_empty()) {
        (Some(prompt), true) => Ok(prompt),
        _ => {
            Err(ApiError::unsupported("prompt", "prompt: a batch of prompts is not supported yet; send one a request"))
        }
    }
}

/// The prompt in both forms. Its text is only made from tokens if it is to be echoed.
async fn tokenise(
    state: &ApiState,
    model: &Arc<Model>,
    prompt: Prompt,
    echo: bool,
) -> Result<(String, Vec<TokenId>), ApiError> {
    let tokenizer = Arc::clone(model.text.tokenizer());
    let (text, tokens) = match prompt {
        Prompt::Text(text) => {
            let bytes_max = tokenizer.max_prompt_bytes(model.info.limits.context_tokens);
            let bytes = text.len();
            let encode = move || {
                let tokens = tokenizer.encode(&text, EncodeOptions::PROMPT, bytes_max)?;
                Ok((text, tokens))
            };
            state.with_text(bytes, encode).await?
        }
        Prompt::Tokens(tokens) if echo => {
            (tokenizer.decode(&tokens, true).map_err(|error| ApiError::from(error).about("prompt"))?, tokens)
        }
        Prompt::Tokens(tokens) => (String::new(), tokens),
    };
    if tokens.is_empty() {
        return Err(ApiError::invalid("prompt", "prompt: is empty, and there is nothing to begin with"));
    }
    Ok((text, tokens))
}

/// The shape of a completion's choice.
struct Completion {
    model: Arc<Model>,
    /// The prompt's text and tokens, until they have been sent.
    echo: Option<(String, Vec<TokenId>)>,
    /// Log-probs that wait for their chunk, if they were asked for.
    logprobs: Option<Logprobs>,
}

#[derive(Serialize)]
struct Choice<'a> {
    text: &'a str,
    index: u32,
    logprobs: Option<Logprobs>,
    finish_reason: Option<Reason>,
}

/// OpenAI's older form of log-probs: four lists of one length.
#[derive(Default, Serialize)]
struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    text_offset: Vec<usize>,
    /// Characters of text before the generated part.
    #[serde(skip)]
    echoed_chars: usize,
}

impl Completion {
    fn choice(&mut self, text: &str, finish_reason: Option<Reason>) -> String {
        let next =
            self.logprobs.as_ref().map(|sent| Logprobs { echoed_chars: sent.echoed_chars, ..Logprobs::default() });
        let logprobs = std::mem::replace(&mut self.logprobs, next);
        json(&Choice { text, index: 0, logprobs, finish_reason })
    }

    fn add(&mut self, piece: &Piece) {
        let Some(logprobs) = &mut self.logprobs else { return };
        for sent in &piece.tokens {
            if let Some((id, logprob)) = &sent.entry {
                logprobs.add(&self.model, *id, Some(logprob), logprobs.echoed_chars + sent.offset);
            }
        }
    }
}

impl Shape for Completion {
    const ID_PREFIX: &'static str = "cmpl";
    const OBJECT: &'static str = "text_completion";
    const CHUNK_OBJECT: &'static str = "text_completion";

    fn prompt(&mut self, prompt: Vec<Option<Logprob>>) {
        let (Some((text, tokens)), Some(logprobs)) = (&self.echo, &mut self.logprobs) else { return };
        let tokenizer = self.model.text.tokenizer();
        let bytes = |id: &TokenId| tokenizer.raw_bytes(*id);
        // A token for the beginning of the text, which the tokenizer added, is not in the text.
        let mut unseen = tokens.iter().map(|id| bytes(id).len()).sum::<usize>().saturating_sub(text.len());
        let mut offset = 0;
        for (id, logprob) in tokens.iter().zip(&prompt) {
            logprobs.add(&self.model, *id, logprob.as_ref(), offset);
            if unseen > 0 {
                unseen = unseen.saturating_sub(bytes(id).len());
            } else {
                // Bytes that begin a character.
                offset += bytes(id).iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
            }
        }
        logprobs.echoed_chars = text.chars().count();
    }

    fn opening(&mut self) -> Option<String> {
        let (text, _) = self.echo.take()?;
        Some(self.choice(&text, None))
    }

    fn chunk(&mut self, piece: &Piece) -> String {
        self.add(piece);
        self.choice(&piece.text, None)
    }

    fn closing(&mut self, reason: Reason) -> String {
        self.logprobs = None;
        self.choice("", Some(reason))
    }

    fn whole(&mut self, piece: &Piece, reason: Reason) -> String {
        self.add(piece);
        let (mut text, _) = self.echo.take().unwrap_or_default();
        text.push_str(&piece.text);
        self.choice(&text, Some(reason))
    }
}

impl Logprobs {
    fn add(&mut self, model: &Model, id: TokenId, logprob: Option<&Logprob>, text_offset: usize) {
        self.tokens.push(spelling(model, id));
        self.token_logprobs.push(logprob.map(|logprob| finite(logprob.chosen)));
        self.top_logprobs.push(logprob.map(|logprob| {
            let chosen = (id, logprob.chosen);
            let top = logprob.top.iter().chain([&chosen]);
            top.map(|&(id, logprob)| (spelling(model, id), finite(logprob))).collect()
        }));
        self.text_offset.push(text_offset);
    }
}

/// The token's text; for a part of a character its bytes, so that different tokens look different.
fn spelling(model: &Model, id: TokenId) -> String {
    let bytes = model.text.tokenizer().raw_bytes(id);
    let escaped = || bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}"));
    std::str::from_utf8(bytes).map_or_else(|_| escaped(), str::to_owned)
}
