//! The generated side of the contract. `full_policy.rs` is written by a tool and never by hand.
//!
//! sha256 of sdk/wit/policy/policy.wit: 772dbb7a73bcdaf39a0a99c4d068c213052431628b2df157197e8bf28312196d
//!
//! After a change of the contract, from the root of the repository:
//!
//! ```text
//! cargo install wit-bindgen-cli@0.63.0 --no-default-features --features rust
//! wit-bindgen rust sdk/wit/policy --world full-policy --out-dir sdk/guest/src/bindings --pub-export-macro --format
//! sha256sum sdk/wit/policy/policy.wit    # goes into the line above; a test compares it
//! plugins/build.sh
//! ```
#![allow(missing_docs, unsafe_code, reason = "generated; the canonical ABI is made of raw pointers")]
#![allow(
    clippy::allow_attributes_without_reason,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "generated"
)]

#[rustfmt::skip]
pub mod full_policy;
