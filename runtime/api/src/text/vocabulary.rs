//! The vocabulary as a model file states it, and the table from token id to bytes that is made of it.
//!
//! The table is built once and read on every token of every stream, so it is one run of bytes with offsets.

use pointsman_engine::ids::TokenId;

use super::bytes::push_decoded;
use super::error::TextError;

/// The tokenizer's part of a model file (in GGUF the keys `tokenizer.ggml.*` and `tokenizer.chat_template`), as plain data.
#[derive(Clone, Debug, Default)]
pub struct VocabularySource {
    /// Kind of tokenizer (`model`); only `gpt2`, byte-level BPE, is supported.
    pub model: String,
    /// Name of the pre-tokenizer (`pre`); use `default` when the file has none.
    pub pre: String,
    /// Text of each token, in id order (`tokens`).
    pub tokens: Vec<String>,
    /// Type of each token (`token_type`), or empty when all are normal.
    pub token_types: Vec<i32>,
    /// Merges in order of rank, each two tokens with a space between (`merges`).
    pub merges: Vec<String>,
    /// Beginning of a sequence (`bos_token_id`).
    pub bos: Option<TokenId>,
    /// End of a sequence (`eos_token_id`).
    pub eos: Option<TokenId>,
    /// Further tokens that end an answer (`eot_token_id`, `eom_token_id`).
    pub ends: Vec<TokenId>,
    /// Whether a prompt begins with `bos` (`add_bos_token`); `None` leaves it to the pre-tokenizer's custom.
    pub add_bos: Option<bool>,
    /// Jinja source (`tokenizer.chat_template`).
    pub chat_template: Option<String>,
}

/// Texts of tokens that end an answer in one model family or another. Files often do not say so: they name one end token,
/// while chat models have two, and some give them a type that would show them in the output.
const END_TEXTS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<end_of_utterance>",
];

/// How a token takes part in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Made by merges, spelled in the byte alphabet.
    Normal,
    /// Part of the text, but matched as a whole before pre-tokenising and spelled as it is.
    UserDefined,
    /// Steers the model; never shown.
    Control,
}

/// Bytes and kind of each token.
pub(super) struct TokenTable {
    bytes: Vec<u8>,
    /// Token `i` has `bytes[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    kinds: Vec<Kind>,
    /// Tokens that end an answer, ascending.
    pub ends: Vec<TokenId>,
    /// Bytes of the longest token, at least 1.
    pub longest: usize,
}

impl TokenTable {
    /// Checks the source's lengths and ids and decodes every token.
    pub fn new(source: &VocabularySource) -> Result<Self, TextError> {
        let vocab = u32::try_from(source.tokens.len())
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(|| TextError::Vocabulary(format!("it has {} tokens", source.tokens.len())))?;
        if !source.token_types.is_empty() && source.token_types.len() != source.tokens.len() {
            return Err(TextError::Vocabulary(format!("{vocab} tokens, but {} token types", source.token_types.len())));
        }
        let mut ends: Vec<TokenId> = source.ends.iter().copied().chain(source.eos).collect();
        if let Some(&id) = ends.iter().chain(&source.bos).find(|&&id| id >= vocab) {
            return Err(TextError::UnknownToken { id, vocab });
        }
        let mut table = Self {
            bytes: Vec::with_capacity(source.tokens.len() * 8),
            starts: Vec::with_capacity(source.tokens.len() + 1),
            kinds: Vec::with_capacity(source.tokens.len()),
            ends: Vec::new(),
            longest: 1,
        };
        table.starts.push(0);
        for (id, token) in (0..).zip(&source.tokens) {
            let is_end = END_TEXTS.contains(&token.as_str());
            let kind = match source.token_types.get(id as usize) {
                _ if is_end => Kind::Control,
                Some(2 | 3) => Kind::Control,
                Some(4) => Kind::UserDefined,
                _ => Kind::Normal,
            };
            if is_end {
                ends.push(id);
            }
            table.push(token, kind);
        }
        ends.sort_unstable();
        ends.dedup();
        table.ends = ends;
        Ok(table)
    }

    fn push(&mut self, token: &str, kind: Kind) {
        let start = self.bytes.len();
        match kind {
            Kind::Normal => push_decoded(token, &mut self.bytes),
            Kind::UserDefined | Kind::Control => self.bytes.extend_from_slice(token.as_bytes()),
        }
        self.longest = self.longest.max(self.bytes.len() - start);
        self.starts.push(self.bytes.len());
        self.kinds.push(kind);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The token's bytes, whatever its kind; `None` outside the vocabulary.
    pub fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let id = id as usize;
        let (start, end) = (*self.starts.get(id)?, *self.starts.get(id + 1)?);
        self.bytes.get(start..end)
    }

    /// The token's kind; `None` outside the vocabulary.
    pub fn kind(&self, id: TokenId) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// All tokens with their kind.
    pub fn kinds(&self) -> impl Iterator<Item = (TokenId, Kind)> + '_ {
        (0..).zip(self.kinds.iter().copied())
    }
}
