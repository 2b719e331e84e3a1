//! One module for each version of the contract that this host takes. The rest of the crate knows the engine's types only.

pub(crate) mod v0_1;
