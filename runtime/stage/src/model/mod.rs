//! Models: what a file promises ([`card`]), and one graph an architecture that keeps the promise.
//!
//! A new architecture is a new file here and one line in the registry below. Loaded once by the application; cut into
//! parts by [`crate::chain`], each run by one stage's thread.

pub mod card;

mod llama;

use std::ops::Range;

use pointsman_tensor::backend::{Backend, Span};
use pointsman_tensor::weights::Gguf;

use crate::error::StageError;
use crate::load::{Loader, Progress};
use card::ModelCard;

/// The registry: the name of an architecture in files, and what loads its graph.
macro_rules! architectures {
    ($($name:literal => $load:path,)+) => {
        /// Architectures that have a graph.
        pub(crate) const SUPPORTED: &[&str] = &[$($name),+];

        fn graph_of<B: Backend>(loader: &mut Loader<'_, B>, card: &ModelCard) -> Result<Box<dyn Graph<B>>, StageError> {
            match card.architecture {
                $($name => $load(loader, card),)+
                other => unreachable!("a card of the unknown architecture '{other}'"),
            }
        }
    };
}

architectures! {
    "llama" => llama::load,
}

/// The weights of one architecture, ready to be cut into parts that share them.
pub(crate) trait Graph<B: Backend>: Send + Sync {
    /// The part that runs `layers`; with the first layer comes the embedding, with the last one the logits.
    fn part(&self, backend: &B, layers: Range<usize>) -> Box<dyn Part<B>>;
}

/// Consecutive layers of a graph, with the activation buffers of one thread.
pub(crate) trait Part<B: Backend>: Send {
    /// Runs one step. `hidden` comes from the part before and goes to the part after it; `kv` is this part's own store.
    /// The last part replaces `logits` by one row of the vocabulary for each wanted row.
    fn forward(&mut self, backend: &B, step: &Step<'_>, hidden: &mut B::Rows, kv: &mut B::Kv, logits: &mut Vec<f32>);
}

/// What a part runs on.
pub(crate) struct Step<'a> {
    /// One token a row, each below the vocabulary's size.
    pub tokens: &'a [u32],
    /// The rows of each sequence, in order, covering all rows.
    pub spans: &'a [Span<'a>],
    /// Rows whose logits are wanted, ascending.
    pub wanted: &'a [usize],
}

/// A loaded model: its card, and its weights in the layout of the device `B`. Chains share the weights.
pub struct Model<B: Backend> {
    card: ModelCard,
    graph: Box<dyn Graph<B>>,
    weight_bytes: u64,
}

impl<B: Backend> Model<B> {
    /// Checks the file against the graph of its architecture and packs every tensor, once. The file is not needed
    /// afterwards. `progress` is told the bytes done and their total after each tensor.
    ///
    /// # Errors
    /// An unsupported architecture or feature, metadata out of range, a tensor that is missing, left over or of another
    /// shape or type than the graph runs.
    pub fn load(gguf: &Gguf, backend: &B, progress: Progress<'_>) -> Result<Self, StageError> {
        let card = ModelCard::from_gguf(gguf)?;
        let mut loader = Loader::new(gguf, backend, progress);
        let graph = graph_of(&mut loader, &card)?;
        let weight_bytes = loader.finish(card.architecture)?;
        Ok(Self { card, graph, weight_bytes })
    }

    /// What the file says about the model.
    #[must_use]
    pub fn card(&self) -> &ModelCard {
        &self.card
    }

    /// Bytes of the file's tensors that the graph reads, each counted once however many chains share it.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// See [`Graph::part`].
    pub(crate) fn part(&self, backend: &B, layers: Range<usize>) -> Box<dyn Part<B>> {
        self.graph.part(backend, layers)
    }
}
