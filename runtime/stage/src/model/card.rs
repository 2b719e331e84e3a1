//! What a file says about its model, as checked numbers. The only reader of a model's hyperparameters.
//!
//! Invariant: every number of a [`ModelCard`] is in the range that its field states, and sizes are small enough that their
//! products can not overflow. Keys that would change the graph and are not known here are refused by name.

use pointsman_tensor::backend::{Heads, Rope};
use pointsman_tensor::weights::{Gguf, Metadata};

use super::SUPPORTED;
use crate::error::StageError;

/// Layers of a model.
const LAYERS_MAX: usize = 1 << 10;
/// Values in a row of activations, and heads of a layer.
const WIDTH_MAX: usize = 1 << 20;
/// Tokens in a vocabulary, and positions in a context.
const TOKENS_MAX: usize = 1 << 28;

/// Keys of an architecture that a card reads, or that do not change the graph. All others are refused.
const KNOWN_KEYS: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// The hyperparameters of a decoder model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCard {
    /// Name of the graph; one of the supported ones.
    pub architecture: &'static str,
    /// Name that its authors gave it; empty if they gave none.
    pub name: String,
    /// Positions that the model has been made for, at least one.
    pub context_length: usize,
    /// Values in a row of the residual stream, at least one.
    pub embedding_length: usize,
    /// Layers, at least one.
    pub layers: usize,
    /// Inner width of the feed-forward network, at least one.
    pub feed_forward_length: usize,
    /// Attention heads; `query * dim` is the embedding length.
    pub heads: Heads,
    /// Added to the mean square in every norm; above 0.
    pub norm_eps: f32,
    /// Base of the rotary frequencies; above 0.
    pub rope_base: f32,
    /// What positions are divided by before they are rotated; above 0, and 1 for most models.
    pub rope_divisor: f32,
    /// Rows of the embedding, at least one; every token is below it.
    pub vocab: usize,
}

impl ModelCard {
    /// Reads and checks the metadata of a file.
    ///
    /// # Errors
    /// An unsupported architecture or feature, or a value that is missing, of the wrong type or out of range; each names
    /// its key.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, StageError> {
        let found = gguf.metadata().str("general.architecture")?;
        let architecture = SUPPORTED
            .iter()
            .find(|name| **name == found)
            .ok_or_else(|| StageError::Architecture { found: found.into(), supported: SUPPORTED })?;
        let keys = Keys { metadata: gguf.metadata(), architecture };
        keys.refuse_unknown()?;
        let embedding_length = keys.size("embedding_length", WIDTH_MAX)?;
        Ok(Self {
            architecture,
            name: gguf.metadata().opt_str("general.name")?.unwrap_or_default().into(),
            context_length: keys.size("context_length", TOKENS_MAX)?,
            embedding_length,
            layers: keys.size("block_count", LAYERS_MAX)?,
            feed_forward_length: keys.size("feed_forward_length", WIDTH_MAX)?,
            heads: keys.heads(embedding_length)?,
            norm_eps: keys
                .positive("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| keys.error("attention.layer_norm_rms_epsilon", "is missing"))?,
            rope_base: keys.positive("rope.freq_base")?.unwrap_or(10_000.0),
            rope_divisor: keys.rope_divisor()?,
            vocab: gguf.tensor("token_embd.weight")?.rows,
        })
    }

    /// The model's rotary frequencies, each divided by its factor; `factors` has half a head of values.
    pub(crate) fn rope(&self, factors: &[f32]) -> Result<Rope, StageError> {
        if let Some(factor) = factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
            let problem = format!("holds {factor}; a factor must be above 0");
            return Err(StageError::Metadata { key: "rope_freqs.weight".into(), problem });
        }
        let dim = self.heads.dim as f64;
        // In f64 and rounded once, so that angles at far positions are as exact as f32 allows.
        let frequency = |(pair, factor): (usize, &f32)| {
            let plain = f64::from(self.rope_base).powf(-2.0 * pair as f64 / dim);
            (plain / f64::from(self.rope_divisor) / f64::from(*factor)) as f32
        };
        Ok(Rope { inverse_frequencies: factors.iter().enumerate().map(frequency).collect() })
    }
}

/// The metadata of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'static str,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn error(&self, key: &str, problem: impl Into<String>) -> StageError {
        StageError::Metadata { key: self.full(key), problem: problem.into() }
    }

    fn refuse_unknown(&self) -> Result<(), StageError> {
        for (key, _) in self.metadata.iter() {
            let Some(own) = key.strip_prefix(self.architecture).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            // Converters write the number of experts into files of models that have none.
            let no_experts = own.starts_with("expert_") && self.metadata.opt_u32(key)? == Some(0);
            if !no_experts && !KNOWN_KEYS.contains(&own) {
                return Err(self.error(own, "may change the model's graph and is not supported yet"));
            }
        }
        Ok(())
    }

    fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>, StageError> {
        let Some(value) = self.metadata.opt_u32(&self.full(key))? else { return Ok(None) };
        match value as usize {
            size if (1..=max).contains(&size) => Ok(Some(size)),
            _ => Err(self.error(key, format!("is {value}, outside 1 to {max}"))),
        }
    }

    fn size(&self, key: &str, max: usize) -> Result<usize, StageError> {
        self.optional_size(key, max)?.ok_or_else(|| self.error(key, "is missing"))
    }

    fn positive(&self, key: &str) -> Result<Option<f32>, StageError> {
        match self.metadata.opt_f32(&self.full(key))? {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                Err(self.error(key, format!("is {value}; it must be above 0")))
            }
            value => Ok(value),
        }
    }

    fn heads(&self, embedding_length: usize) -> Result<Heads, StageError> {
        let query = self.size("attention.head_count", WIDTH_MAX)?;
        let kv = self.optional_size("attention.head_count_kv", WIDTH_MAX)?.unwrap_or(query);
        if !query.is_multiple_of(kv) {
            return Err(self
                .error("attention.head_count_kv", format!("is {kv}, which does not divide the {query} query heads")));
        }
        let dim = embedding_length / query;
        if !embedding_length.is_multiple_of(query) || !dim.is_multiple_of(2) {
            let problem = format!(
                "is {query}, which does not cut the {embedding_length} of the embedding into heads of even size"
            );
            return Err(self.error("attention.head_count", problem));
        }
        for key in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
            if let Some(other) = self.optional_size(key, WIDTH_MAX)?.filter(|&other| other != dim) {
                return Err(
                    self.error(key, format!("is {other}, but only {dim}, the size of a head, is supported yet"))
                );
            }
        }
        Ok(Heads { query, kv, dim })
    }

    /// A file with a factor and without a type means linear scaling: older converters wrote no type.
    fn rope_divisor(&self) -> Result<f32, StageError> {
        let key = "rope.scaling.type";
        match self.metadata.opt_str(&self.full(key))? {
            Some("none") => Ok(1.0),
            Some("linear") | None => {
                let factor = self.positive("rope.scaling.factor")?;
                Ok(factor.or(self.positive("rope.scale_linear")?).unwrap_or(1.0))
            }
            Some(other) => Err(self.error(key, format!("is '{other}', but only none and linear are supported yet"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(rope_divisor: f32) -> ModelCard {
        ModelCard {
            architecture: "llama",
            name: String::new(),
            context_length: 1,
            embedding_length: 8,
            layers: 1,
            feed_forward_length: 1,
            heads: Heads { query: 1, kv: 1, dim: 8 },
            norm_eps: 1e-5,
            rope_base: 10_000.0,
            rope_divisor,
            vocab: 1,
        }
    }

    #[test]
    fn frequencies_fall_by_the_base_and_are_divided_by_both_scalings() {
        let plain = card(1.0).rope(&[1.0; 4]).unwrap();
        assert_eq!(plain.inverse_frequencies, [1.0, 0.1, 0.01, 0.001]);
        let scaled = card(2.0).rope(&[1.0, 1.0, 4.0, 8.0]).unwrap();
        assert_eq!(scaled.inverse_frequencies, [0.5, 0.05, 0.00125, 0.0000625]);
    }

    #[test]
    fn refuses_factors_that_are_not_above_zero() {
        for factor in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(card(1.0).rope(&[1.0, factor, 1.0, 1.0]).is_err(), "{factor}");
        }
    }
}
