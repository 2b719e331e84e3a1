//! What can go wrong between text and token ids. The HTTP layer maps each variant to a status and a code.

/// Why text could not be turned into tokens, or messages into text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The model file names a kind of tokenizer that is not implemented.
    #[error("tokenizer model {0:?} is not supported; supported is \"gpt2\" (byte-level BPE)")]
    Model(String),
    /// The model file names a pre-tokenizer that is not implemented. Guessing one would give wrong tokens without a sign.
    #[error("pre-tokenizer {name:?} is not supported; supported are {supported}")]
    PreTokenizer {
        /// The name in the file.
        name: String,
        /// All names that are known.
        supported: String,
    },
    /// The vocabulary contradicts itself.
    #[error("bad vocabulary: {0}")]
    Vocabulary(String),
    /// The text can not fit, found before any work was done on it.
    #[error("the text has {bytes} bytes, but at most {max} can fit into the context")]
    TooLong {
        /// Length of the text.
        bytes: usize,
        /// What the caller allowed.
        max: usize,
    },
    /// The tokenizer gave up on this text.
    #[error("the text can not be tokenised: {0}")]
    Encode(String),
    /// A token id outside the vocabulary.
    #[error("token id {id} is not in the vocabulary, whose ids are below {vocab}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// The stop strings are too many, too long, or empty.
    #[error("{0}")]
    Stop(String),
    /// The model file has no chat template.
    #[error("this model has no chat template; use /v1/completions")]
    NoTemplate,
    /// The model file's chat template does not compile.
    #[error("this model's chat template is not usable ({0}); use /v1/completions")]
    TemplateSyntax(String),
    /// The chat template does not accept these messages; its own words.
    #[error("{0}")]
    Refused(String),
    /// The chat template failed on these messages.
    #[error("the chat template failed at line {line}: {message}")]
    Template {
        /// What went wrong.
        message: String,
        /// Where, starting at 1.
        line: usize,
    },
}
