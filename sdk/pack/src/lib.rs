//! From the sources of a policy to the one file that is uploaded.
//!
//! [`build_policy`] is what `pointsman policy build` runs: cargo for `wasm32-unknown-unknown`, then [`componentize`], then a
//! look at the imports. The same toolchain gives the same bytes in any folder. [`source_hash`] and [`Manifest`] tie a
//! component that is kept in a repository to the sources that it was built from.

mod cargo;
mod component;
mod manifest;
mod source;

pub use crate::cargo::{BuildError, BuiltPolicy, build_example, build_policy, toolchain};
pub use crate::component::{ComponentError, Interfaces, componentize, interfaces};
pub use crate::manifest::{Entry, Manifest, ManifestError};
pub use crate::source::{Sources, sha256_hex, source_hash};
