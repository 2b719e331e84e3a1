//! Cuts text into the pieces within which BPE may merge. Which rules a vocabulary was trained with is named in the model file.
//!
//! The rules are data: each name has one or more passes, and each pass cuts every piece of the pass before it into its
//! matches and the gaps between them. They are the published patterns of the vocabularies' authors, in the form that
//! llama.cpp gives them under the same names.

use fancy_regex::Regex;

use super::error::TextError;

/// GPT-2: contractions, letters, numbers, other marks, white space that leaves its last character to the next word.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3: contractions in any case, letters with one leading mark, up to three digits, line ends kept together.
const LLAMA3: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2: as Llama 3, with single digits.
const QWEN2: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What belongs to one pre-tokenizer name.
pub(super) struct Rules {
    names: &'static [&'static str],
    passes: &'static [&'static str],
    /// A piece that is a token as a whole is taken as it is, even if merges would not lead to it.
    pub whole_pieces: bool,
    /// Whether prompts begin with `bos` when the file does not say.
    pub add_bos: bool,
}

const RULES: [Rules; 6] = [
    Rules {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        passes: &[r"\p{N}", GPT2],
        whole_pieces: false,
        add_bos: false,
    },
    Rules { names: &["gpt-2", "phi-2", "mpt", "olmo"], passes: &[GPT2], whole_pieces: false, add_bos: false },
    Rules { names: &["llama-bpe", "llama3", "llama-v3"], passes: &[LLAMA3], whole_pieces: true, add_bos: true },
    Rules { names: &["smaug-bpe", "dbrx"], passes: &[LLAMA3], whole_pieces: false, add_bos: false },
    Rules { names: &["qwen2", "deepseek-r1-qwen", "stablelm2"], passes: &[QWEN2], whole_pieces: false, add_bos: false },
    Rules {
        names: &["default"],
        passes: &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_pieces: false,
        add_bos: false,
    },
];

impl Rules {
    /// The rules with this name.
    pub fn named(name: &str) -> Result<&'static Self, TextError> {
        RULES.iter().find(|rules| rules.names.contains(&name)).ok_or_else(|| TextError::PreTokenizer {
            name: name.to_owned(),
            supported: RULES.iter().flat_map(|rules| rules.names).copied().collect::<Vec<_>>().join(", "),
        })
    }
}

/// Compiled rules.
pub(super) struct PreTokenizer(Vec<Regex>);

impl PreTokenizer {
    pub fn new(rules: &Rules) -> Result<Self, TextError> {
        let compile = |pass: &&str| Regex::new(pass).map_err(|error| TextError::Encode(error.to_string()));
        rules.passes.iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    /// Calls `piece` on each piece of `text`, in order; together they are the text.
    pub fn split<'t>(
        &self,
        text: &'t str,
        mut piece: impl FnMut(&'t str) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        split(&self.0, text, &mut piece)
    }
}

fn split<'t>(
    passes: &[Regex],
    text: &'t str,
    piece: &mut impl FnMut(&'t str) -> Result<(), TextError>,
) -> Result<(), TextError> {
    if text.is_empty() {
        return Ok(());
    }
    let Some((pass, later)) = passes.split_first() else { return piece(text) };
    let mut done = 0;
    for found in pass.find_iter(text) {
        let found = found.map_err(|error| TextError::Encode(error.to_string()))?;
        split(later, &text[done..found.start()], piece)?;
        split(later, found.as_str(), piece)?;
        done = found.end();
    }
    split(later, &text[done..], piece)
}

#[cfg(test)]
mod tests {
    use super::{PreTokenizer, RULES, Rules};

    fn pieces<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        let pre_tokenizer = PreTokenizer::new(Rules::named(name).unwrap()).unwrap();
        let mut keep = |piece| {
            pieces.push(piece);
            Ok(())
        };
        pre_tokenizer.split(text, &mut keep).unwrap();
        pieces
    }

    #[test]
    fn each_family_cuts_its_own_way() {
        let text = "I'M 2024  ok's\n\n x";
        assert_eq!(pieces("gpt-2", text), ["I", "'", "M", " 2024", " ", " ok", "'s", "\n\n", " x"]);
        assert_eq!(pieces("smollm", text), ["I", "'", "M", " ", "2", "0", "2", "4", " ", " ok", "'s", "\n\n", " x"]);
        assert_eq!(pieces("llama-bpe", text), ["I", "'M", " ", "202", "4", " ", " ok", "'s", "\n\n", " x"]);
        assert_eq!(pieces("qwen2", text), ["I", "'M", " ", "2", "0", "2", "4", " ", " ok", "'s", "\n\n", " x"]);
        assert_eq!(pieces("default", text), ["I", "'", "M", " ", "202", "4", " ", " ok", "'", "s", "\n\n", " x"]);
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        assert_eq!(pieces("smollm", "    x"), ["   ", " x"]);
        assert_eq!(pieces("smollm", "    1"), ["    ", "1"]);
        assert_eq!(pieces("smollm", "x    "), ["x", "    "]);
        assert_eq!(pieces("smollm", "½٣Ⅷ"), ["½", "٣", "Ⅷ"]);
    }

    #[test]
    fn pieces_are_the_text_under_every_name() {
        let text = " Grüße, 世界! 👨‍👩‍👧 e\u{301}\r\n\t<|x|> $1,234.50 \u{0}\u{A0}  it's";
        for name in RULES.iter().flat_map(|rules| rules.names) {
            assert_eq!(pieces(name, text).concat(), text, "{name}");
        }
    }
}
