//! One choice's way from new tokens to text that may be sent: [`Detokenizer`], then [`StopMatcher`].
//!
//! Text can be held back, and a token's log-prob must not be shown before its text. So each token brings an entry (whatever
//! the caller wants to send with it), and the entry comes back once all of the token's text has been let go, in order and
//! exactly once. At the end, by a stop string or otherwise, all entries come back: there are as many as tokens were pushed.

use std::collections::VecDeque;
use std::sync::Arc;

use pointsman_engine::ids::TokenId;

use super::detokenizer::Detokenizer;
use super::stop::{Emit, StopMatcher, StopStrings};
use super::tokenizer::Tokenizer;

/// What may be sent after a token, or at the end. Often empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<E> {
    /// Whole characters.
    pub text: String,
    /// Tokens whose text is out with this piece or earlier.
    pub tokens: Vec<SentToken<E>>,
    /// A stop string was found: cancel the request, this was its last piece.
    pub stopped: bool,
}

/// A token whose text is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentToken<E> {
    /// What was pushed with the token.
    pub entry: E,
    /// Characters of the generated text before the one that holds the token's first byte.
    pub offset: usize,
}

struct Waiting<E> {
    token: SentToken<E>,
    /// Bytes of the stream up to the token's end.
    bytes_end: usize,
    /// Length of the text by which these bytes are decoded, once they are.
    text_end: Option<usize>,
}

/// The stream of one choice. `E` is what is kept for each token, `()` for nothing.
pub struct TextStream<E> {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    /// At most as many as there are bytes of text held back, and tokens without text between them.
    waiting: VecDeque<Waiting<E>>,
    bytes_in: usize,
    decoded_bytes: usize,
    decoded_chars: usize,
    sent_bytes: usize,
    stopped: bool,
}

impl<E> TextStream<E> {
    /// Begins a stream. The prompt is no part of it.
    #[must_use]
    pub fn new(tokenizer: Arc<Tokenizer>, stops: &StopStrings) -> Self {
        Self {
            tokenizer,
            detokenizer: Detokenizer::default(),
            stops: StopMatcher::new(stops),
            waiting: VecDeque::new(),
            bytes_in: 0,
            decoded_bytes: 0,
            decoded_chars: 0,
            sent_bytes: 0,
            stopped: false,
        }
    }

    /// Adds a token. Control tokens add no text. A token that arrives after a stop is dropped with its entry.
    #[must_use]
    pub fn push(&mut self, id: TokenId, entry: E) -> Piece<E> {
        if self.stopped {
            return Piece { text: String::new(), tokens: Vec::new(), stopped: true };
        }
        let bytes = self.tokenizer.token_bytes(id);
        self.bytes_in += bytes.len();
        let token = SentToken { entry, offset: self.decoded_chars };
        self.waiting.push_back(Waiting { token, bytes_end: self.bytes_in, text_end: None });
        let text = self.detokenizer.push(bytes);
        let emit = self.advance(&text);
        self.release(emit)
    }

    /// Ends the stream. Harmless after a stop.
    #[must_use]
    pub fn finish(&mut self) -> Piece<E> {
        let text = self.detokenizer.finish();
        let mut emit = self.advance(&text);
        let last = self.stops.finish();
        emit.text.push_str(&last.text);
        emit.stopped = last.stopped;
        let mut piece = self.release(emit);
        piece.tokens.extend(self.waiting.drain(..).map(|waiting| waiting.token));
        piece
    }

    /// Counts decoded text, marks the tokens that it completes, and asks for what is safe to send.
    fn advance(&mut self, text: &str) -> Emit {
        self.decoded_bytes += text.len();
        self.decoded_chars += text.chars().count();
        let resolved = self.bytes_in - self.detokenizer.pending();
        let open = self.waiting.iter_mut().rev().take_while(|waiting| waiting.text_end.is_none());
        for waiting in open.filter(|waiting| waiting.bytes_end <= resolved) {
            waiting.text_end = Some(self.decoded_bytes);
        }
        self.stops.push(text)
    }

    fn release(&mut self, emit: Emit) -> Piece<E> {
        self.sent_bytes += emit.text.len();
        self.stopped = emit.stopped;
        let is_out =
            |waiting: &mut Waiting<E>| emit.stopped || waiting.text_end.is_some_and(|end| end <= self.sent_bytes);
        let mut tokens = Vec::new();
        while let Some(waiting) = self.waiting.pop_front_if(is_out) {
            tokens.push(waiting.token);
        }
        Piece { text: emit.text, tokens, stopped: emit.stopped }
    }
}
