//! Model graphs, and the stage workers that run them.
//!
//! Used by the application in this order:
//! 1. [`Model::load`] checks a GGUF file against the graph of its architecture and packs its tensors for a device, once.
//! 2. [`Chain::spawn`] cuts the graph into stages and starts a thread for each; chains of one model share its weights.
//! 3. [`Chain::launch`] takes the engine's step plans; results come back through a callback, in order.
//!
//! A step runs the same operations on the same rows however the model is cut and whatever else is in the batch, so its
//! logits are bit-identical as well (the device's promise, see [`pointsman_tensor::backend`]).

mod load;

pub mod model;

pub mod plan;

pub mod chain;

mod batch;
mod link;
mod worker;

mod error;

pub use chain::{Chain, ChainOptions};
pub use error::{ChainDown, StageError};
pub use load::Progress;
pub use model::Model;
pub use model::card::ModelCard;
pub use worker::Done;
