//! One line in the access log for each request, written when the last part of it is over.
//!
//! The [`RequestLog`] of a request is held by the middleware until the response head is known and, for generations,
//! by the body of the response until it ends. Whoever lets go last writes the line, so a stream is logged with its
//! token counts and its whole duration. No prompt text is ever logged.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known about one HTTP request.
pub(crate) struct RequestLog {
    /// The caller's request id, or one made for it.
    pub(crate) id: String,
    /// When the request's head arrived.
    pub(crate) started: Instant,
    route: String,
    facts: Mutex<Facts>,
}

/// What becomes known on the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Status of the response; none when the client left before there was one.
    pub(crate) status: Option<u16>,
    /// Seed of a generation, so that it can be repeated.
    pub(crate) seed: Option<u64>,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: u32,
    /// Tokens generated.
    pub(crate) output_tokens: u32,
    /// From the request's head to the first token.
    pub(crate) first_token: Option<Duration>,
    /// How the generation ended.
    pub(crate) finish: Option<&'static str>,
}

impl RequestLog {
    /// Starts the clock.
    pub(crate) fn new(id: String, route: String) -> Self {
        Self { id, started: Instant::now(), route, facts: Mutex::new(Facts::default()) }
    }

    /// The facts, to be filled in.
    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let facts = self.facts().clone();
        tracing::info!(
            target: "pointsman::access",
            id = %self.id,
            route = %self.route,
            status = facts.status.unwrap_or(499),
            seed = facts.seed,
            prompt_tokens = facts.prompt_tokens,
            output_tokens = facts.output_tokens,
            ttft_ms = facts.first_token.map(|t| t.as_millis() as u64),
            total_ms = self.started.elapsed().as_millis() as u64,
            finish = facts.finish.unwrap_or("-"),
        );
    }
}
