//! A running request as server-sent events, for `"stream": true`.
//!
//! 1. The status is held back until the first event (or [`KEEP_ALIVE`]), so a request that fails before its first token
//!    gets a real error status.
//! 2. One chunk for each token that sets text or log-probs free; ready tokens are not merged, since clients count chunks.
//! 3. The last token chunk is followed by one with the finish reason, one with the usage if asked for, and `[DONE]`.
//!    A failure on the way is an `error` event, and `[DONE]`.
//!
//! The stream holds the [`Generation`]; when the client leaves, the body is dropped, and the engine stops.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::timeout;

use crate::answer::{Envelope, Shape, usage_json};
use crate::error::ApiError;
use crate::generation::{Generation, Piece, Step};
use crate::limits::KEEP_ALIVE;

const DONE: &[u8] = b"data: [DONE]\n\n";
/// A comment, which clients skip.
const PING: &[u8] = b": keep-alive\n\n";

/// Answers with a stream, or with the failure that came before it.
pub(crate) async fn respond(
    mut generation: Generation,
    shape: impl Shape,
    envelope: Envelope,
    include_usage: bool,
) -> Result<Response, ApiError> {
    let first = match timeout(KEEP_ALIVE, generation.next()).await {
        Ok(Step::Failed(error)) => return Err(error),
        Ok(step) => Some(step),
        Err(_) => None,
    };
    let mut frames = Frames::new(shape, &envelope, include_usage);
    frames.push(first, &generation);
    let body = stream::unfold((frames, generation), async |(mut frames, mut generation)| {
        loop {
            if let Some(frame) = frames.ready.pop_front() {
                return Some((Ok::<_, Infallible>(frame), (frames, generation)));
            }
            if frames.ended {
                return None;
            }
            let step = timeout(KEEP_ALIVE, generation.next()).await.ok();
            frames.push(step, &generation);
        }
    });
    let headers = [
        (header::CONTENT_TYPE.as_str(), "text/event-stream"),
        (header::CACHE_CONTROL.as_str(), "no-cache"),
        // Asks proxies not to collect the small packets.
        ("x-accel-buffering", "no"),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Turns steps into frames.
struct Frames<S> {
    shape: S,
    /// A chunk's text before and after its choice.
    head: String,
    tail: &'static str,
    include_usage: bool,
    opened: bool,
    ended: bool,
    /// Frames to send: a handful at most.
    ready: VecDeque<Bytes>,
}

impl<S: Shape> Frames<S> {
    fn new(shape: S, envelope: &Envelope, include_usage: bool) -> Self {
        let head = format!("data: {}", envelope.head(S::CHUNK_OBJECT));
        // With usage asked for, OpenAI's chunks say null until the one that has it.
        let tail = if include_usage { "],\"usage\":null}\n\n" } else { "]}\n\n" };
        Self { shape, head, tail, include_usage, opened: false, ended: false, ready: VecDeque::new() }
    }

    /// Adds the frames of a step; `None` is a wait without one.
    fn push(&mut self, step: Option<Step>, generation: &Generation) {
        match step {
            None => self.ready.push_back(Bytes::from_static(PING)),
            Some(Step::Prompt(logprobs)) => self.shape.prompt(logprobs),
            Some(Step::Token(piece)) => self.piece(&piece),
            Some(Step::End(piece, reason)) => {
                self.piece(&piece);
                let closing = self.shape.closing(reason);
                self.chunk(&closing);
                if self.include_usage {
                    let usage = format!("{}],\"usage\":{}}}\n\n", self.head, usage_json(generation.usage()));
                    self.ready.push_back(usage.into());
                }
                self.end();
            }
            Some(Step::Failed(error)) => {
                self.ready.push_back(format!("data: {}\n\n", error.body()).into());
                self.end();
            }
        }
    }

    fn piece(&mut self, piece: &Piece) {
        if !self.opened {
            self.opened = true;
            if let Some(opening) = self.shape.opening() {
                self.chunk(&opening);
            }
        }
        if !piece.text.is_empty() || piece.tokens.iter().any(|token| token.entry.is_some()) {
            let choice = self.shape.chunk(piece);
            self.chunk(&choice);
        }
    }

    fn chunk(&mut self, choice: &str) {
        let mut frame = String::with_capacity(self.head.len() + choice.len() + self.tail.len());
        frame.push_str(&self.head);
        frame.push_str(choice);
        frame.push_str(self.tail);
        self.ready.push_back(frame.into());
    }

    fn end(&mut self) {
        self.ended = true;
        self.ready.push_back(Bytes::from_static(DONE));
    }
}
