//! Identifiers and units. An index, a count and a time are different types, so that they can not be mixed up.
//!
//! Used everywhere; ids are assigned by the host and mean nothing outside the engine that assigned them.

/// A token id of the model's vocabulary.
pub type TokenId = u32;

/// One accepted request. Unique for the life of the process, assigned by the caller of [`crate::Engine::submit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One chain: a path of stages that together hold the whole model. Dense, starting at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u32);

/// One block of a chain's paged KV store; the same id names the same block on every stage of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Microseconds on the caller's monotonic clock. The engine never reads a clock; time is always an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// The time from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}
