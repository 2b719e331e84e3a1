//! From what a front end asks to a request that the engine can run: checked once, here.
//!
//! [`RawRequest`] is plain data in token ids; [`Request`] can only be made by [`Request::check`], so that everything past
//! the door may rely on its bounds.

use crate::ids::{Micros, TokenId};
use crate::limits;

/// How the next token is drawn. Neutral values switch a filter off.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy; otherwise logits are divided by it. 0..=2.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this. (0, 1], 1 is off.
    pub top_p: f32,
    /// Keep this many most likely tokens; 0 is off.
    pub top_k: u32,
    /// Drop tokens less likely than this fraction of the most likely one. 0..=1, 0 is off.
    pub min_p: f32,
    /// Subtracted once from every token already generated. -2..=2, 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence among the generated tokens. -2..=2, 0 is off.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output. (0, 10], 1 is off.
    pub repetition_penalty: f32,
    /// Added to the logits of these tokens; each -100..=100.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of this request's random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A request as a front end hands it in, not yet checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawRequest {
    /// The prompt in token ids.
    pub prompt: Vec<TokenId>,
    /// At most this many new tokens; `None` runs to the end of the context.
    pub max_new_tokens: Option<u32>,
    /// Before this many new tokens no stop token is drawn.
    pub min_new_tokens: u32,
    /// Tokens that end the request (end-of-sequence and the caller's own); empty to ignore them.
    pub stop_tokens: Vec<TokenId>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Report log-probs, with this many alternatives.
    pub logprobs: Option<u32>,
    /// Report the prompt's log-probs too.
    pub prompt_logprobs: bool,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class, 0 the default.
    pub class: u32,
    /// Time by which an answer is wanted, 0 for none.
    pub deadline: Micros,
    /// Hash of the session, 0 for none.
    pub session: u64,
}

/// What the model and the server allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Longest sequence, prompt and new tokens together.
    pub context_tokens: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
}

/// Why a request was refused at the door. The HTTP layer maps each to a status.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reject {
    /// A field is out of its range.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, named as in [`RawRequest`] and [`Sampling`].
        field: &'static str,
        /// What was wrong and what is allowed.
        reason: String,
    },
    /// Prompt, or prompt plus the tokens asked for, exceed the context.
    #[error("the prompt has {prompt} tokens and {wanted} new ones were asked for, but the context holds {context}")]
    ContextLength {
        /// Tokens of the prompt.
        prompt: u32,
        /// New tokens asked for (at least 1).
        wanted: u32,
        /// Tokens that the context holds.
        context: u32,
    },
    /// The request could never fit into any chain's KV store.
    #[error("the request needs {needed} KV tokens, but a chain holds {available}")]
    TooLarge {
        /// Tokens to reserve.
        needed: u32,
        /// Tokens of the largest chain.
        available: u32,
    },
    /// The central queue is full.
    #[error("the queue of {0} requests is full")]
    QueueFull(u32),
    /// The policy refused it; the policy's own code.
    #[error("the routing policy refused the request with code {0}")]
    Policy(u32),
    /// The server is draining and takes no new request.
    #[error("the server is shutting down")]
    Draining,
}

/// A request whose every field is in range. Immutable.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    raw: RawRequest,
    max_new_tokens: u32,
}

impl Request {
    /// Checks `raw` against the limits and resolves `max_new_tokens`.
    ///
    /// A prompt must leave room for one new token. Asking for more new tokens than the context has left is an error; not
    /// saying how many means as many as fit.
    ///
    /// # Errors
    /// [`Reject::Invalid`] or [`Reject::ContextLength`]; the first fault found.
    pub fn check(raw: RawRequest, model: ModelLimits) -> Result<Self, Reject> {
        let max_new_tokens = resolve_length(&raw, model.context_tokens)?;
        check_tokens("prompt", &raw.prompt, model.vocab)?;
        at_most("stop_tokens", raw.stop_tokens.len(), limits::STOP_TOKENS_MAX)?;
        check_tokens("stop_tokens", &raw.stop_tokens, model.vocab)?;
        if raw.min_new_tokens > max_new_tokens {
            let reason = format!("{} is more than the {max_new_tokens} new tokens allowed", raw.min_new_tokens);
            return Err(Reject::Invalid { field: "min_new_tokens", reason });
        }
        at_most("logprobs", raw.logprobs.unwrap_or(0) as usize, limits::LOGPROBS_MAX as usize)?;
        raw.sampling.check(model.vocab)?;
        Ok(Self { raw, max_new_tokens })
    }

    /// The fields as they were asked for.
    #[must_use]
    pub fn raw(&self) -> &RawRequest {
        &self.raw
    }

    /// The most tokens that will be generated; at least 1.
    #[must_use]
    pub fn max_new_tokens(&self) -> u32 {
        self.max_new_tokens
    }

    /// KV tokens reserved for it: prompt + maximum new tokens.
    #[must_use]
    pub fn reserve_tokens(&self) -> u32 {
        self.prompt_tokens() + self.max_new_tokens
    }

    /// Length of the prompt.
    #[must_use]
    pub fn prompt_tokens(&self) -> u32 {
        // Checked: the prompt is shorter than the context.
        self.raw.prompt.len() as u32
    }
}

impl Sampling {
    /// Whether the most likely token is always taken.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    fn check(&self, vocab: u32) -> Result<(), Reject> {
        within("temperature", self.temperature, 0.0, 2.0)?;
        positive("top_p", self.top_p, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        positive("repetition_penalty", self.repetition_penalty, 10.0)?;
        at_most("logit_bias", self.logit_bias.len(), limits::LOGIT_BIAS_MAX)?;
        for &(token, bias) in &self.logit_bias {
            check_tokens("logit_bias", &[token], vocab)?;
            within("logit_bias", bias, -100.0, 100.0)?;
        }
        Ok(())
    }
}

/// The most tokens that may be generated: what was asked for, or what is left of the context.
fn resolve_length(raw: &RawRequest, context: u32) -> Result<u32, Reject> {
    if raw.prompt.is_empty() {
        return Err(invalid("prompt", "is empty; at least one token is needed"));
    }
    if raw.max_new_tokens == Some(0) {
        return Err(invalid("max_new_tokens", "must be at least 1"));
    }
    let prompt = u32::try_from(raw.prompt.len()).unwrap_or(u32::MAX);
    let left = context.saturating_sub(prompt);
    let wanted = raw.max_new_tokens.unwrap_or(left.max(1));
    if wanted > left {
        return Err(Reject::ContextLength { prompt, wanted, context });
    }
    Ok(wanted)
}

fn check_tokens(field: &'static str, tokens: &[TokenId], vocab: u32) -> Result<(), Reject> {
    match tokens.iter().find(|&&token| token >= vocab) {
        None => Ok(()),
        Some(token) => Err(invalid(field, format!("token {token} is outside the vocabulary of {vocab}"))),
    }
}

fn at_most(field: &'static str, count: usize, max: usize) -> Result<(), Reject> {
    if count <= max { Ok(()) } else { Err(invalid(field, format!("{count} is more than the maximum of {max}"))) }
}

/// `min <= value <= max`; NaN is not.
fn within(field: &'static str, value: f32, min: f32, max: f32) -> Result<(), Reject> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(invalid(field, format!("{value} is not within {min}..={max}")))
    }
}

/// `0 < value <= max`; NaN is not.
fn positive(field: &'static str, value: f32, max: f32) -> Result<(), Reject> {
    if value > 0.0 && value <= max {
        Ok(())
    } else {
        Err(invalid(field, format!("{value} is not above 0 and at most {max}")))
    }
}

fn invalid(field: &'static str, reason: impl Into<String>) -> Reject {
    Reject::Invalid { field, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelLimits = ModelLimits { context_tokens: 10, vocab: 100 };

    fn raw(prompt: usize, max_new_tokens: Option<u32>) -> RawRequest {
        RawRequest { prompt: vec![1; prompt], max_new_tokens, ..RawRequest::default() }
    }

    #[test]
    fn resolves_new_tokens_against_the_context() {
        let new_tokens = |prompt, max| Request::check(raw(prompt, max), MODEL).map(|request| request.max_new_tokens());
        let refused = |prompt, wanted| Err(Reject::ContextLength { prompt, wanted, context: 10 });
        assert_eq!(new_tokens(4, None), Ok(6));
        assert_eq!(new_tokens(9, None), Ok(1));
        assert_eq!(new_tokens(10, None), refused(10, 1));
        assert_eq!(new_tokens(11, Some(5)), refused(11, 5));
        assert_eq!(new_tokens(4, Some(6)), Ok(6));
        assert_eq!(new_tokens(4, Some(7)), refused(4, 7));
        assert_eq!(new_tokens(4, Some(u32::MAX)), refused(4, u32::MAX));
        assert_eq!(Request::check(raw(4, Some(3)), MODEL).map(|request| request.reserve_tokens()), Ok(7));
    }

    #[test]
    fn names_the_field_that_is_out_of_range() {
        type Spoil = fn(&mut RawRequest);
        let cases: [(&str, Spoil); 21] = [
            ("prompt", |r| r.prompt.clear()),
            ("prompt", |r| r.prompt = vec![100]),
            ("max_new_tokens", |r| r.max_new_tokens = Some(0)),
            ("min_new_tokens", |r| r.min_new_tokens = 6),
            ("stop_tokens", |r| r.stop_tokens = vec![1; limits::STOP_TOKENS_MAX + 1]),
            ("stop_tokens", |r| r.stop_tokens = vec![100]),
            ("logprobs", |r| r.logprobs = Some(21)),
            ("temperature", |r| r.sampling.temperature = f32::NAN),
            ("temperature", |r| r.sampling.temperature = -0.1),
            ("temperature", |r| r.sampling.temperature = f32::INFINITY),
            ("top_p", |r| r.sampling.top_p = 0.0),
            ("top_p", |r| r.sampling.top_p = 1.1),
            ("min_p", |r| r.sampling.min_p = -0.1),
            ("min_p", |r| r.sampling.min_p = f32::NAN),
            ("presence_penalty", |r| r.sampling.presence_penalty = 2.5),
            ("frequency_penalty", |r| r.sampling.frequency_penalty = -2.5),
            ("repetition_penalty", |r| r.sampling.repetition_penalty = 0.0),
            ("repetition_penalty", |r| r.sampling.repetition_penalty = 10.5),
            ("logit_bias", |r| r.sampling.logit_bias = vec![(100, 0.0)]),
            ("logit_bias", |r| r.sampling.logit_bias = vec![(1, 101.0)]),
            ("logit_bias", |r| r.sampling.logit_bias = vec![(1, 0.0); limits::LOGIT_BIAS_MAX + 1]),
        ];
        assert!(Request::check(raw(4, Some(5)), MODEL).is_ok());
        for (expected, spoil) in cases {
            let mut spoilt = raw(4, Some(5));
            spoil(&mut spoilt);
            match Request::check(spoilt, MODEL) {
                Err(Reject::Invalid { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }
}
