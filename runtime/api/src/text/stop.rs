//! Stop strings in a stream of text, wherever the borders between tokens fall.
//!
//! The answer ends before the first place where any stop string occurs: the smallest start of any occurrence in the text.
//! Two stop strings can overlap so that the one that is complete first does not begin first (`R S` and `Q R S T`); then the
//! end is known only when the longer one is complete or has failed, and text from its beginning on is held until then.
//!
//! Each string is followed by an automaton (Knuth, Morris and Pratt), so that a byte costs a constant on average, and the
//! text held back is shorter than the longest string.

use std::sync::Arc;

use super::error::TextError;

/// Stop strings of one request.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string.
pub const STOP_BYTES_MAX: usize = 1024;

/// Checked stop strings with their automata. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopStrings(Arc<[Pattern]>);

#[derive(Debug)]
struct Pattern {
    bytes: Box<[u8]>,
    /// `borders[i]`: length of the longest proper prefix of `bytes[..=i]` that is also its suffix.
    borders: Box<[usize]>,
}

impl StopStrings {
    /// Checks number and lengths. An empty list never stops.
    ///
    /// # Errors
    /// [`TextError::Stop`] for more than [`STOPS_MAX`] strings, an empty one, or one longer than [`STOP_BYTES_MAX`].
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, TextError> {
        if stops.len() > STOPS_MAX {
            let count = stops.len();
            return Err(TextError::Stop(format!("{count} stop strings were given, at most {STOPS_MAX} are allowed")));
        }
        stops.iter().map(|stop| Pattern::new(stop.as_ref())).collect::<Result<_, _>>().map(Self)
    }
}

impl Pattern {
    fn new(stop: &str) -> Result<Self, TextError> {
        match stop.len() {
            0 => return Err(TextError::Stop("a stop string must not be empty".to_owned())),
            1..=STOP_BYTES_MAX => {}
            length => {
                let message = format!("a stop string has {length} bytes, at most {STOP_BYTES_MAX} are allowed");
                return Err(TextError::Stop(message));
            }
        }
        let mut pattern = Self { bytes: stop.as_bytes().into(), borders: vec![0; stop.len()].into() };
        let mut matched = 0;
        for at in 1..stop.len() {
            matched = pattern.advance(matched, pattern.bytes[at]);
            pattern.borders[at] = matched;
        }
        Ok(pattern)
    }

    /// With the first `matched` bytes (fewer than all) matched, how many are after `byte`.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        loop {
            if self.bytes[matched] == byte {
                return matched + 1;
            }
            if matched == 0 {
                return 0;
            }
            matched = self.borders[matched - 1];
        }
    }
}

/// What may be sent now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emit {
    /// Text that no stop string can begin in.
    pub text: String,
    /// A stop string was found; nothing follows.
    pub stopped: bool,
}

/// Follows one stream of generated text. The prompt is never given to it.
#[derive(Debug)]
pub struct StopMatcher {
    stops: StopStrings,
    /// For each string the bytes of it that the text so far ends with; `None` once it was found.
    matched: Vec<Option<usize>>,
    held: String,
    /// Start in `held` of the earliest occurrence so far.
    found: Option<usize>,
    stopped: bool,
}

impl StopMatcher {
    /// Begins a stream.
    #[must_use]
    pub fn new(stops: &StopStrings) -> Self {
        let matched = vec![Some(0); stops.0.len()];
        Self { stops: stops.clone(), matched, held: String::new(), found: None, stopped: false }
    }

    /// Adds text; returns what is safe to send. After a stop everything is ignored.
    #[must_use]
    pub fn push(&mut self, text: &str) -> Emit {
        if self.stopped {
            return Emit { text: String::new(), stopped: true };
        }
        let mut end = self.held.len();
        self.held.push_str(text);
        for &byte in text.as_bytes() {
            end += 1;
            self.step(byte, end);
            if self.found.is_some_and(|found| self.earliest_open(end) >= found) {
                return self.stop();
            }
        }
        let safe = self.earliest_open(end).min(self.found.unwrap_or(end));
        self.found = self.found.map(|found| found - safe);
        Emit { text: self.held.drain(..safe).collect(), stopped: false }
    }

    /// Ends the stream: what was held back can not become a stop string any more.
    #[must_use]
    pub fn finish(&mut self) -> Emit {
        if self.stopped || self.found.is_some() {
            return self.stop();
        }
        Emit { text: std::mem::take(&mut self.held), stopped: false }
    }

    /// Advances every automaton by the byte that ends at `end` in `held`.
    fn step(&mut self, byte: u8, end: usize) {
        for (pattern, state) in self.stops.0.iter().zip(&mut self.matched) {
            let Some(matched) = state else { continue };
            *matched = pattern.advance(*matched, byte);
            if *matched == pattern.bytes.len() {
                let start = end - *matched;
                self.found = Some(self.found.map_or(start, |found| found.min(start)));
                *state = None;
            }
        }
    }

    /// Where in `held` the earliest string begins that the text may still complete; `end` if there is none.
    fn earliest_open(&self, end: usize) -> usize {
        end - self.matched.iter().flatten().max().copied().unwrap_or(0)
    }

    fn stop(&mut self) -> Emit {
        self.stopped = true;
        let mut text = std::mem::take(&mut self.held);
        text.truncate(self.found.take().unwrap_or(0));
        Emit { text, stopped: true }
    }
}
