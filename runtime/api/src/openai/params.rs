//! The fields that both generating endpoints share, with every default spelled out, and the fields that are refused.

use std::collections::BTreeMap;

use pointsman_engine::ids::TokenId;
use pointsman_engine::request::{RawRequest, Sampling};
use serde::Deserialize;
use serde_json::Value;

use super::unknown_model;
use crate::error::ApiError;
use crate::ids;
use crate::limits::IGNORED_PARAMS_MAX;
use crate::parse::Fields;
use crate::state::Model;
use crate::text::StopStrings;

/// What both endpoints ask for, apart from the prompt and log-probs.
pub(crate) struct Params {
    /// Drawing, limits and tenant; the prompt is still empty.
    pub(crate) raw: RawRequest,
    /// Strings that end the text.
    pub(crate) stop: StopStrings,
    /// Answer as a stream.
    pub(crate) stream: bool,
    /// End the stream with a chunk of usage.
    pub(crate) include_usage: bool,
}

#[derive(Deserialize, Default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Params {
    /// Takes the shared fields. `model` may be absent, which clients of single-model servers are used to.
    pub(crate) fn take(fields: &mut Fields, model: &Model) -> Result<Self, ApiError> {
        if let Some(name) = fields.take::<String>("model")?.filter(|name| *name != model.info.id) {
            return Err(unknown_model(&name, Some(&model.info.id)));
        }
        refuse_unserved(fields)?;
        let stream = fields.take("stream")?.unwrap_or(false);
        let options = fields.take::<StreamOptions>("stream_options")?;
        if options.is_some() && !stream {
            return Err(ApiError::invalid("stream_options", "stream_options: only with \"stream\": true"));
        }
        let ignore_eos = fields.take("ignore_eos")?.unwrap_or(false);
        let mut stop_tokens = if ignore_eos { Vec::new() } else { model.text.tokenizer().end_tokens().to_vec() };
        stop_tokens.extend(fields.take::<Vec<TokenId>>("stop_token_ids")?.unwrap_or_default());
        let raw = RawRequest {
            max_new_tokens: take_max_tokens(fields)?,
            min_new_tokens: fields.take("min_tokens")?.unwrap_or(0),
            stop_tokens,
            sampling: take_sampling(fields, model.info.limits.vocab)?,
            tenant: fields.take::<String>("user")?.map_or(0, |user| tenant(&user)),
            ..RawRequest::default()
        };
        let include_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
        Ok(Self { raw, stop: take_stop(fields)?, stream, include_usage })
    }
}

/// The names of fields that nobody took, for the `x-ignored-params` header. Only plain names, and not endlessly many.
pub(crate) fn ignored(fields: &Fields) -> Option<String> {
    let plain =
        |name: &&str| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let names: Vec<&str> = fields.names().filter(plain).take(IGNORED_PARAMS_MAX).collect();
    (!names.is_empty()).then(|| names.join(","))
}

fn take_sampling(fields: &mut Fields, vocab: u32) -> Result<Sampling, ApiError> {
    Ok(Sampling {
        temperature: fields.take("temperature")?.unwrap_or(1.0),
        top_p: fields.take("top_p")?.unwrap_or(1.0),
        // Both 0 and the -1 of other servers switch it off.
        top_k: fields.take::<i64>("top_k")?.map_or(Ok(0), |k| match k {
            -1 => Ok(0),
            k => u32::try_from(k).map_err(|_| ApiError::invalid("top_k", "top_k: must be -1, 0 or more")),
        })?,
        min_p: fields.take("min_p")?.unwrap_or(0.0),
        presence_penalty: fields.take("presence_penalty")?.unwrap_or(0.0),
        frequency_penalty: fields.take("frequency_penalty")?.unwrap_or(0.0),
        repetition_penalty: fields.take("repetition_penalty")?.unwrap_or(1.0),
        logit_bias: take_logit_bias(fields, vocab)?,
        seed: fields.take::<i64>("seed")?.map_or_else(ids::random, i64::cast_unsigned),
    })
}

fn take_max_tokens(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let old = fields.take::<u64>("max_tokens")?;
    let new = fields.take::<u64>("max_completion_tokens")?;
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let message = format!("max_completion_tokens: {new} contradicts max_tokens: {old}; send one of them");
        return Err(ApiError::invalid("max_completion_tokens", message));
    }
    // More than any context holds; the engine's check says so with the right numbers.
    Ok(new.or(old).map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
}

fn take_logit_bias(fields: &mut Fields, vocab: u32) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let biases = fields.take::<BTreeMap<String, f32>>("logit_bias")?.unwrap_or_default();
    let token = |(key, bias): (String, f32)| match key.parse::<TokenId>() {
        Ok(token) if token < vocab => Ok((token, bias)),
        Ok(_) => Err(format!("logit_bias: token {key} is outside the vocabulary of {vocab}")),
        Err(_) => Err(format!("logit_bias: the key {key:?} is not a token id")),
    };
    biases.into_iter().map(token).collect::<Result<_, _>>().map_err(|why| ApiError::invalid("logit_bias", why))
}

fn take_stop(fields: &mut Fields) -> Result<StopStrings, ApiError> {
    let stop = match fields.first_byte("stop") {
        Some(b'"') => fields.take::<String>("stop")?.into_iter().collect(),
        _ => fields.take::<Vec<String>>("stop")?.unwrap_or_default(),
    };
    Ok(StopStrings::new(&stop)?)
}

/// Refuses, by name, what would change the meaning of the answer if it were ignored.
fn refuse_unserved(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["n", "best_of"] {
        if fields.take::<i64>(name)?.is_some_and(|n| n != 1) {
            return Err(ApiError::unsupported(name, format!("{name}: only 1 is supported")));
        }
    }
    for name in ["tools", "functions", "audio", "suffix"] {
        fields.refuse(name, "not supported by this server")?;
    }
    for name in ["tool_choice", "function_call"] {
        // Without tools, these two words ask for nothing.
        let harmless = |choice: &Value| choice == "none" || choice == "auto";
        if fields.take::<Value>(name)?.is_some_and(|choice| !harmless(&choice)) {
            return Err(ApiError::unsupported(name, format!("{name}: tools are not supported by this server")));
        }
    }
    if fields.take::<Vec<String>>("modalities")?.is_some_and(|kinds| kinds.iter().any(|kind| kind != "text")) {
        return Err(ApiError::unsupported("modalities", "modalities: only text is supported"));
    }
    #[derive(Deserialize)]
    struct Format {
        r#type: String,
    }
    if fields.take::<Format>("response_format")?.is_some_and(|format| format.r#type != "text") {
        let message = "response_format: only {\"type\":\"text\"} is supported by this server";
        return Err(ApiError::unsupported("response_format", message));
    }
    let guided =
        |name: &&str| name.starts_with("guided_") || ["structured_outputs", "grammar", "json_schema"].contains(name);
    let guided: Option<String> = fields.names().find(guided).map(str::to_owned);
    guided.map_or(Ok(()), |name| {
        fields.refuse(
            &name,
            "not supported; the field for structured output is response_format, of which this server has text",
        )
    })
}

/// A stable number for a caller's `user`, never 0, which means none (FNV-1a).
fn tenant(user: &str) -> u32 {
    let hash = user.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}
