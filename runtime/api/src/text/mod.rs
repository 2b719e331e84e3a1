//! Between text and token ids: the only place in the runtime that knows text.
//!
//! In the order of a request: [`ChatTemplate::render`] turns messages into one string, [`Tokenizer::encode`] turns a string
//! into ids, the engine works on ids alone, and one [`TextStream`] a choice turns the new ids back into text that is safe to
//! send: whole characters only, and nothing that may still turn out to be the beginning of a stop string.
//!
//! [`ModelText`] holds what belongs to a model. It is built once from a [`VocabularySource`], is immutable afterwards and
//! shared by all requests.

mod bytes;
mod detokenizer;
mod error;
mod jinja;
mod pretokenizer;
mod stop;
mod stream;
mod strftime;
mod template;
#[cfg(test)]
mod tests;
mod tokenizer;
mod vocabulary;

use std::sync::Arc;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{Emit, STOP_BYTES_MAX, STOPS_MAX, StopMatcher, StopStrings};
pub use stream::{Piece, SentToken, TextStream};
pub use template::{ChatTemplate, Message, RenderOptions, Role};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocabulary::VocabularySource;

/// A model's tokenizer and chat template.
pub struct ModelText {
    tokenizer: Arc<Tokenizer>,
    template: Result<ChatTemplate, TextError>,
}

impl ModelText {
    /// Builds both from a model file's metadata. A missing or faulty template is no error here: completions work without
    /// one, and [`ModelText::template`] tells why chat does not.
    ///
    /// # Errors
    /// Those of [`Tokenizer::new`].
    pub fn new(mut source: VocabularySource) -> Result<Self, TextError> {
        let template = source.chat_template.take();
        let tokenizer = Tokenizer::new(source)?;
        let template = template
            .ok_or(TextError::NoTemplate)
            .and_then(|template| ChatTemplate::new(&template, &tokenizer.bos_text(), &tokenizer.eos_text()));
        Ok(Self { tokenizer: Arc::new(tokenizer), template })
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`], or [`TextError::TemplateSyntax`] when the model's template does not compile.
    pub fn template(&self) -> Result<&ChatTemplate, TextError> {
        self.template.as_ref().map_err(Clone::clone)
    }
}
