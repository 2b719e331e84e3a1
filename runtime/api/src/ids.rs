//! Random numbers for ids and for requests without a seed.

use std::hash::{BuildHasher, RandomState};

/// 64 random bits. The standard library keys every `RandomState` from the operating system's randomness, which is plenty
/// for ids and sampling seeds; nothing secret is made from it.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// A new id: `prefix-` and 32 hexadecimal digits.
pub(crate) fn fresh(prefix: &str) -> String {
    format!("{prefix}-{:016x}{:016x}", random(), random())
}
