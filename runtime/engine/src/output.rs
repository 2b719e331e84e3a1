//! What the engine tells the outside: one stream of events a request, ending in exactly one [`Event::Done`].
//!
//! Collected in an [`Outbox`] by every engine call; the driver hands events to their readers and plans to their chains.

use crate::ids::{RequestId, TokenId};
use crate::port::StepPlan;

/// A token with its log-probability (natural log, of the model's own distribution before any sampling filter).
#[derive(Clone, Debug, PartialEq)]
pub struct Logprob {
    /// log p(token).
    pub chosen: f32,
    /// The most likely tokens, best first; as many as were asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// Something happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It has been dispatched to a chain. The first event of every request that runs, and sent once.
    Started {
        /// Tokens of the prompt that need not be run, since their keys and values are in the prefix cache.
        cached_tokens: u32,
    },
    /// Log-probs of the prompt's tokens, if asked for: one entry for each token, the first `None`. Sent before any token.
    Prompt(Vec<Option<Logprob>>),
    /// One new token. A stop token ends the request and is not sent.
    Token {
        /// The token.
        id: TokenId,
        /// Present if asked for.
        logprob: Option<Logprob>,
    },
    /// The end; nothing follows.
    Done(Finish),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token was drawn.
    Stop,
    /// The maximum of new tokens, or the context, was reached.
    Length,
    /// The caller cancelled it.
    Cancelled,
    /// A policy refused it after it had been queued; the policy's own code.
    Rejected(u32),
    /// A device failed or the engine was shut down; one line for people.
    Failed(String),
}

/// What one engine call produced. The caller empties it.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Micro-batches to start, in order.
    pub plans: Vec<StepPlan>,
    /// Events to deliver, in order.
    pub events: Vec<(RequestId, Event)>,
}
