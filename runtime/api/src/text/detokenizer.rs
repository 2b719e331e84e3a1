//! Bytes of a stream to text, whole characters at a time.
//!
//! The pieces joined equal `String::from_utf8_lossy` of all bytes joined, however the bytes are cut into tokens: what may
//! still become a character is held back, what can not becomes U+FFFD by the same rule.

use std::str::from_utf8;

/// Holds at most the three bytes of an unfinished character. One a stream.
#[derive(Debug, Default)]
pub struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Adds a token's bytes; returns the text that is complete by now.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> String {
        if let (true, Ok(text)) = (self.pending.is_empty(), from_utf8(bytes)) {
            return text.to_owned();
        }
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut done = 0;
        while let Err(error) = from_utf8(&self.pending[done..]) {
            let valid = done + error.valid_up_to();
            text.push_str(&String::from_utf8_lossy(&self.pending[done..valid]));
            done = valid;
            let Some(invalid) = error.error_len() else {
                self.pending.drain(..done);
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid;
        }
        text.push_str(&String::from_utf8_lossy(&self.pending[done..]));
        self.pending.clear();
        text
    }

    /// Bytes held back, 0 to 3.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Ends the stream: a character that was never finished becomes one U+FFFD.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}
