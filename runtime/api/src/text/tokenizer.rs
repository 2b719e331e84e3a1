//! Byte-level BPE between text and token ids, built from a model file's vocabulary.
//!
//! Encoding: tokens that stand in the text by name are cut out first, what is left is cut into pieces by the
//! [`pretokenizer`](super::pretokenizer), and each piece is spelled in the byte alphabet and merged by the `tokenizers`
//! crate. A byte for which the vocabulary has no token is dropped, as llama.cpp does.

use aho_corasick::{AhoCorasick, MatchKind};
use pointsman_engine::ids::TokenId;
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};

use super::bytes::ALPHABET;
use super::error::TextError;
use super::pretokenizer::{PreTokenizer, Rules};
use super::vocabulary::{Kind, TokenTable, VocabularySource};

/// How a text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Begin with the `bos` token if the model wants it and the text does not begin with it already.
    pub add_special: bool,
    /// Read control tokens where the text spells them (`<|im_end|>`). Needed for the output of a chat template; raw prompts
    /// are read the same way, as llama.cpp does, so that callers may write templates of their own. Without it their
    /// spelling is ordinary text. User-defined tokens are always read.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// For prompts of both kinds, raw and from a chat template.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };
}

/// A model's tokenizer. Immutable; share it.
pub struct Tokenizer {
    bpe: BPE,
    pieces: PreTokenizer,
    /// Whether the byte has a token; no merge reaches across one that has none.
    is_known: [bool; 256],
    table: TokenTable,
    /// Tokens matched in any text.
    user_defined: Named,
    /// The same and the control tokens.
    all_named: Named,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    add_bos: bool,
}

impl Tokenizer {
    /// Checks the vocabulary and builds the tables.
    ///
    /// # Errors
    /// [`TextError::Model`], [`TextError::PreTokenizer`] for kinds that are not supported, [`TextError::Vocabulary`] or
    /// [`TextError::UnknownToken`] when the vocabulary contradicts itself.
    pub fn new(source: VocabularySource) -> Result<Self, TextError> {
        if source.model != "gpt2" {
            return Err(TextError::Model(source.model));
        }
        let rules = Rules::named(&source.pre)?;
        let table = TokenTable::new(&source)?;
        let bpe = build_bpe(source.tokens, &source.merges, rules.whole_pieces)?;
        Ok(Self {
            is_known: ALPHABET.map(|character| bpe.token_to_id(character.encode_utf8(&mut [0; 4])).is_some()),
            bpe,
            pieces: PreTokenizer::new(rules)?,
            user_defined: Named::new(&table, |kind| kind == Kind::UserDefined)?,
            all_named: Named::new(&table, |kind| kind != Kind::Normal)?,
            bos: source.bos,
            eos: source.eos,
            add_bos: source.add_bos.unwrap_or(rules.add_bos),
            table,
        })
    }

    /// Turns text into ids. Costs up to a microsecond a byte, so a long text is no work for a thread that serves others.
    ///
    /// # Errors
    /// [`TextError::TooLong`] for more than `max_bytes` bytes, before any work is done (see
    /// [`Tokenizer::max_prompt_bytes`]); [`TextError::Encode`] if the pre-tokenizer gives up.
    pub fn encode(&self, text: &str, options: EncodeOptions, max_bytes: usize) -> Result<Vec<TokenId>, TextError> {
        if text.len() > max_bytes {
            return Err(TextError::TooLong { bytes: text.len(), max: max_bytes });
        }
        let named = if options.parse_special { &self.all_named } else { &self.user_defined };
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        let mut spelled = String::new();
        let mut done = 0;
        for (start, end, id) in named.find(text) {
            self.encode_plain(&text[done..start], &mut spelled, &mut ids)?;
            ids.push(id);
            done = end;
        }
        self.encode_plain(&text[done..], &mut spelled, &mut ids)?;
        if let Some(bos) = self.bos.filter(|_| options.add_special && self.add_bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_plain(&self, text: &str, spelled: &mut String, ids: &mut Vec<TokenId>) -> Result<(), TextError> {
        self.pieces.split(text, |piece| {
            for known in piece.as_bytes().split(|&byte| !self.is_known[byte as usize]) {
                spelled.clear();
                spelled.extend(known.iter().map(|&byte| ALPHABET[byte as usize]));
                let tokens = self.bpe.tokenize(spelled).map_err(|error| TextError::Encode(error.to_string()))?;
                ids.extend(tokens.iter().map(|token| token.id));
            }
            Ok(())
        })
    }

    /// A text longer than this has certainly more than `context_tokens` tokens (of the bytes that have a token).
    #[must_use]
    pub fn max_prompt_bytes(&self, context_tokens: u32) -> usize {
        self.table.longest.saturating_mul(context_tokens as usize)
    }

    /// The bytes that the token adds to the output: none for control tokens and for ids outside the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        if self.is_special(id) { &[] } else { self.raw_bytes(id) }
    }

    /// The token's bytes with control tokens spelled out, as log-probs show them; none outside the vocabulary.
    #[must_use]
    pub fn raw_bytes(&self, id: TokenId) -> &[u8] {
        self.table.bytes(id).unwrap_or_default()
    }

    /// [`Tokenizer::raw_bytes`] as text; bytes that are no text by themselves become U+FFFD.
    #[must_use]
    pub fn token_text(&self, id: TokenId) -> String {
        String::from_utf8_lossy(self.raw_bytes(id)).into_owned()
    }

    /// Turns ids into text, with control tokens spelled out if `show_special`.
    ///
    /// # Errors
    /// [`TextError::UnknownToken`].
    pub fn decode(&self, ids: &[TokenId], show_special: bool) -> Result<String, TextError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            if id >= self.vocab_size() {
                return Err(TextError::UnknownToken { id, vocab: self.vocab_size() });
            }
            bytes.extend_from_slice(if show_special { self.raw_bytes(id) } else { self.token_bytes(id) });
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Number of tokens; ids are below it.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.table.len() as u32
    }

    /// Whether the token steers the model and is never shown.
    #[must_use]
    pub fn is_special(&self, id: TokenId) -> bool {
        self.table.kind(id) == Some(Kind::Control)
    }

    /// Tokens that end an answer, ascending: those that the file names and those known by their text.
    #[must_use]
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.table.ends
    }

    /// Text of the `bos` token, empty if there is none.
    #[must_use]
    pub fn bos_text(&self) -> String {
        self.bos.map(|id| self.token_text(id)).unwrap_or_default()
    }

    /// Text of the `eos` token, empty if there is none.
    #[must_use]
    pub fn eos_text(&self) -> String {
        self.eos.map(|id| self.token_text(id)).unwrap_or_default()
    }
}

/// Tokens that are found in text by name, the leftmost and longest first.
struct Named {
    matcher: AhoCorasick,
    ids: Vec<TokenId>,
}

impl Named {
    fn new(table: &TokenTable, wanted: impl Fn(Kind) -> bool) -> Result<Self, TextError> {
        let named =
            |&(id, kind): &(TokenId, Kind)| wanted(kind) && table.bytes(id).is_some_and(|text| !text.is_empty());
        let ids: Vec<_> = table.kinds().filter(named).map(|(id, _)| id).collect();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(ids.iter().filter_map(|&id| table.bytes(id)))
            .map_err(|error| TextError::Vocabulary(error.to_string()))?;
        Ok(Self { matcher, ids })
    }

    /// Start, end and id of each match.
    fn find(&self, text: &str) -> impl Iterator<Item = (usize, usize, TokenId)> {
        let id = |pattern: usize| self.ids.get(pattern).copied();
        self.matcher.find_iter(text).filter_map(move |m| Some((m.start(), m.end(), id(m.pattern().as_usize())?)))
    }
}

fn build_bpe(tokens: Vec<String>, merges: &[String], whole_pieces: bool) -> Result<BPE, TextError> {
    let longest = tokens.iter().map(String::len).max().unwrap_or(0);
    let mut pairs = Vec::with_capacity(merges.len());
    for (rank, merge) in merges.iter().enumerate() {
        // The builder would read past its buffer for a merge that is longer than every token.
        match merge.split_once(' ') {
            Some((left, right)) if left.len() + right.len() <= longest => {
                pairs.push((left.to_owned(), right.to_owned()));
            }
            _ => return Err(TextError::Vocabulary(format!("merge {rank} ({merge:?}) is not two tokens"))),
        }
    }
    let vocab: Vocab = tokens.into_iter().zip(0..).collect();
    BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(whole_pieces)
        .build()
        .map_err(|error| TextError::Vocabulary(error.to_string()))
}
