//! The shape of the machine that an engine runs: chains, blocks, bounds. Checked once, by [`crate::Engine::new`].

use crate::limits;
use crate::request::ModelLimits;

/// One chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainConfig {
    /// Sequences that may run at once; 1..=[`limits::CHAIN_JOBS_MAX`].
    pub jobs_max: u32,
    /// Blocks of its paged KV store, at least 1; a block id is valid on every stage of the chain.
    pub kv_blocks: u32,
    /// Pipeline stages, and so micro-batches in flight; 1..=[`limits::CHAIN_STAGES_MAX`].
    pub stages: u32,
}

/// How many prompt tokens go into one micro-batch. Each is 1..=[`limits::PREFILL_TOKENS_MAX`].
///
/// None of it changes what a request generates, only when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// While nothing decodes on the chain: large, so that weights are read once for many tokens. Default 256.
    pub alone_tokens: u32,
    /// While something decodes: small, so that the time between two of its tokens stays short. Default 96.
    pub beside_decode_tokens: u32,
    /// Of prompts whose log-probs are reported, together: each token returns a whole row of logits. Default 32.
    pub scored_tokens: u32,
}

impl Default for Prefill {
    fn default() -> Self {
        Self { alone_tokens: 256, beside_decode_tokens: 96, scored_tokens: 32 }
    }
}

/// Everything that an engine is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The chains; their ids are their places in this list.
    pub chains: Vec<ChainConfig>,
    /// Tokens of one KV block; 1..=[`limits::BLOCK_TOKENS_MAX`].
    pub block_tokens: u32,
    /// Context and vocabulary of the model. A request without a maximum of new tokens reserves the whole context, so a
    /// context that no chain can hold should be lowered to what the largest chain holds.
    pub model: ModelLimits,
    /// Key of the random bits that policies are given.
    pub seed: u64,
    /// Requests in the central queue; at most [`limits::QUEUE_REQUESTS_MAX`]. With 0 a request runs at once or is refused.
    pub queue_max: u32,
    /// Prompt tokens of one micro-batch.
    pub prefill: Prefill,
    /// Whether blocks of ended and running sequences are shared with later prompts of the same tenant that begin alike.
    /// It does not change what a request generates.
    pub prefix_cache: bool,
}

/// A value that no engine can be made from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be within {min}..={max}")]
pub struct ConfigError {
    /// The field, with its chain if it belongs to one.
    pub field: String,
    /// Its value.
    pub value: u64,
    /// The least allowed.
    pub min: u64,
    /// The most allowed.
    pub max: u64,
}

impl EngineConfig {
    /// Checks every field; the first that is out of its range is the error.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let count =
            |field: &str, value: usize, min: u64, max: usize| within(field.into(), value as u64, min, max as u64);
        count("chains", self.chains.len(), 1, limits::CHAINS_MAX)?;
        count("queue_max", self.queue_max as usize, 0, limits::QUEUE_REQUESTS_MAX)?;
        for (field, value, max) in [
            ("block_tokens", self.block_tokens, limits::BLOCK_TOKENS_MAX),
            ("model.context_tokens", self.model.context_tokens, u32::MAX),
            ("model.vocab", self.model.vocab, u32::MAX),
            ("prefill.alone_tokens", self.prefill.alone_tokens, limits::PREFILL_TOKENS_MAX),
            ("prefill.beside_decode_tokens", self.prefill.beside_decode_tokens, limits::PREFILL_TOKENS_MAX),
            ("prefill.scored_tokens", self.prefill.scored_tokens, limits::PREFILL_TOKENS_MAX),
        ] {
            within(field.into(), u64::from(value), 1, u64::from(max))?;
        }
        // A chain's tokens are counted in 32 bits.
        let blocks_max = u64::from(u32::MAX / self.block_tokens);
        for (index, chain) in self.chains.iter().enumerate() {
            let field = |name| format!("chains[{index}].{name}");
            within(field("jobs_max"), u64::from(chain.jobs_max), 1, limits::CHAIN_JOBS_MAX as u64)?;
            within(field("kv_blocks"), u64::from(chain.kv_blocks), 1, blocks_max)?;
            within(field("stages"), u64::from(chain.stages), 1, limits::CHAIN_STAGES_MAX as u64)?;
        }
        Ok(())
    }
}

fn within(field: String, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError { field, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> EngineConfig {
        EngineConfig {
            chains: vec![ChainConfig { jobs_max: 8, kv_blocks: 64, stages: 1 }],
            block_tokens: 16,
            model: ModelLimits { context_tokens: 128, vocab: 64 },
            seed: 0,
            queue_max: 4,
            prefill: Prefill::default(),
            prefix_cache: true,
        }
    }

    #[test]
    fn names_the_field_that_is_out_of_range() {
        type Spoil = fn(&mut EngineConfig);
        let cases: [(&str, Spoil); 9] = [
            ("chains", |c| c.chains.clear()),
            ("queue_max", |c| c.queue_max = 257),
            ("block_tokens", |c| c.block_tokens = 0),
            ("model.vocab", |c| c.model.vocab = 0),
            ("model.context_tokens", |c| c.model.context_tokens = 0),
            ("prefill.alone_tokens", |c| c.prefill.alone_tokens = 0),
            ("chains[0].jobs_max", |c| c.chains[0].jobs_max = 257),
            ("chains[0].kv_blocks", |c| c.chains[0].kv_blocks = u32::MAX / 16 + 1),
            ("chains[0].stages", |c| c.chains[0].stages = 0),
        ];
        assert_eq!(good().check(), Ok(()));
        for (field, spoil) in cases {
            let mut config = good();
            spoil(&mut config);
            assert_eq!(config.check().map_err(|error| error.field), Err(field.to_owned()));
        }
    }
}
