//! One running request: the engine's events become steps of text. Read by `sse` one step at a time, by `answer` all at
//! once; both see the same steps, so a stream's text is the plain answer's by construction.
//!
//! Dropping it cancels the request in the engine, so a client that leaves, in a stream or not, stops the work. It ends
//! in exactly one [`Step::End`] or [`Step::Failed`].

use std::sync::Arc;
use std::time::Instant;

use pointsman_engine::ids::{RequestId, TokenId};
use pointsman_engine::output::{Event, Finish, Logprob};
use pointsman_engine::request::{RawRequest, Reject, Request};
use serde::Serialize;

use crate::error::{ApiError, Class};
use crate::log::RequestLog;
use crate::metrics::Metrics;
use crate::service::Submission;
use crate::state::{ApiState, Model};
use crate::text::{self, StopStrings, TextStream};

/// What happened next.
pub(crate) enum Step {
    /// Log-probs of the prompt's tokens; the first thing, if asked for.
    Prompt(Vec<Option<Logprob>>),
    /// One token. Its text may be held back, for a whole character or a possible stop string; then the piece is empty.
    Token(Piece),
    /// The end: what had been held back, and why it ended.
    End(Piece, Reason),
    /// The end: a failure.
    Failed(ApiError),
}

/// Text that may be sent, with the tokens whose text is out by now.
pub(crate) type Piece = text::Piece<Entry>;

/// A token with its log-prob, if those were asked for.
pub(crate) type Entry = Option<(TokenId, Logprob)>;

/// OpenAI's finish reasons, as far as this server has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reason {
    /// A stop token or stop string.
    Stop,
    /// The maximum of new tokens, or the context.
    Length,
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    /// Those of the prompt that were in the engine's prefix cache.
    pub(crate) cached_tokens: u32,
    pub(crate) output_tokens: u32,
}

/// What to run.
pub(crate) struct Job {
    /// For the engine.
    pub(crate) raw: RawRequest,
    /// Stop strings.
    pub(crate) stop: StopStrings,
    /// End after the prompt, without a token.
    pub(crate) prompt_only: bool,
}

/// A request that runs.
pub(crate) struct Generation {
    /// The engine's number.
    pub(crate) request: RequestId,
    submission: Option<Submission>,
    text: TextStream<Entry>,
    prompt_only: bool,
    stopped: bool,
    usage: Usage,
    last_token: Option<Instant>,
    log: Arc<RequestLog>,
    metrics: Arc<Metrics>,
}

impl Generation {
    /// Checks the job and hands it to the engine.
    pub(crate) async fn start(
        state: &ApiState,
        model: &Model,
        job: Job,
        log: Arc<RequestLog>,
    ) -> Result<Self, ApiError> {
        let text = TextStream::new(Arc::clone(model.text.tokenizer()), &job.stop);
        let prompt_tokens = u32::try_from(job.raw.prompt.len()).unwrap_or(u32::MAX);
        let usage = Usage { prompt_tokens, cached_tokens: 0, output_tokens: 0 };
        let seed = job.raw.sampling.seed;
        let request = Request::check(job.raw, model.info.limits)?;
        let submission = state.service().submit(request).await?;
        {
            let mut facts = log.facts();
            facts.seed = Some(seed);
            facts.prompt_tokens = usage.prompt_tokens;
            facts.finish = Some("disconnected");
        }
        Ok(Self {
            request: submission.id,
            submission: Some(submission),
            text,
            prompt_only: job.prompt_only,
            stopped: false,
            usage,
            last_token: None,
            log,
            metrics: Arc::clone(state.metrics()),
        })
    }

    /// Tokens so far; the whole count after the end.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Waits for the next step. May be dropped while it waits without losing one.
    pub(crate) async fn next(&mut self) -> Step {
        if self.stopped {
            return self.end(Reason::Stop);
        }
        loop {
            let event = match &mut self.submission {
                Some(submission) => submission.events.recv().await,
                None => None,
            };
            return match event {
                Some(Event::Started { cached_tokens }) => {
                    self.usage.cached_tokens = cached_tokens;
                    continue;
                }
                Some(Event::Prompt(logprobs)) => Step::Prompt(logprobs),
                Some(Event::Token { .. }) if self.prompt_only => self.end(Reason::Length),
                Some(Event::Token { id, logprob }) => self.token(id, logprob),
                Some(Event::Done(finish)) => self.done(finish),
                None => self.done(Finish::Failed("the engine let go of the request".to_owned())),
            };
        }
    }

    fn token(&mut self, id: TokenId, logprob: Option<Logprob>) -> Step {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => {
                let time = now.duration_since(self.log.started);
                self.metrics.first_token(time);
                self.log.facts().first_token = Some(time);
            }
            Some(last) => self.metrics.inter_token(now.duration_since(last)),
        }
        self.usage.output_tokens += 1;
        let piece = self.text.push(id, logprob.map(|logprob| (id, logprob)));
        if piece.stopped {
            // No further token is wanted; the engine need not make it.
            self.submission = None;
            self.stopped = true;
        }
        Step::Token(piece)
    }

    fn done(&mut self, finish: Finish) -> Step {
        let error = match finish {
            Finish::Stop => return self.end(Reason::Stop),
            Finish::Length => return self.end(Reason::Length),
            Finish::Cancelled => ApiError::new(Class::Cancelled, "the server ended the request before its time"),
            Finish::Rejected(code) => Reject::Policy(code).into(),
            Finish::Failed(why) => ApiError::new(Class::EngineFailed, why),
        };
        self.submission = None;
        self.log.facts().finish = Some("failed");
        Step::Failed(error)
    }

    fn end(&mut self, reason: Reason) -> Step {
        self.submission = None;
        let piece = self.text.finish();
        // The last tokens can complete a stop string that a longer one had kept open.
        let reason = if piece.stopped { Reason::Stop } else { reason };
        self.log.facts().finish = Some(match reason {
            Reason::Stop => "stop",
            Reason::Length => "length",
        });
        Step::End(piece, reason)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.metrics.request(self.log.started.elapsed());
        self.log.facts().output_tokens = self.usage.output_tokens;
    }
}
