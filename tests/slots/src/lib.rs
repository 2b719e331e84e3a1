//! What the tests of this crate share: the shipped policies as native code ([`natives`]), the shipped and hostile components, and
//! traffic through a real engine with a slot.

#![allow(clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

pub mod natives;
pub mod scenes;

use std::path::Path;

use pointsman_policy::exam::traffic::Traffic;
use pointsman_policy::{Artifact, PolicyHost, PolicySlot, Slots};

/// How much work a test does: `usual`, or what the environment variable `POINTSMAN_LONG` says for runs that take their time.
#[must_use]
pub fn amount(usual: u64) -> u64 {
    std::env::var("POINTSMAN_LONG").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A policy that ships, by name.
#[must_use]
pub fn shipped(name: &str) -> Artifact {
    artifact(&format!("plugins/dist/{name}.wasm"))
}

/// A hostile guest, by name.
#[must_use]
pub fn hostile(name: &str) -> Artifact {
    artifact(&format!("tests/security/guests/dist/{name}.wasm"))
}

fn artifact(path: &str) -> Artifact {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Artifact::new(&bytes).expect("a component")
}

/// Traffic through so many chains, with this slot for routing and the builtin in the others.
#[must_use]
pub fn traffic(route: PolicySlot, chains: usize, seed: u64) -> Traffic {
    Traffic::new(Slots::only(route), chains, seed).expect("a good configuration")
}

/// A host that keeps compiled policies from one test to the next: without optimisation, compiling one takes more than a second.
#[must_use]
pub fn host() -> PolicyHost {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-policies");
    PolicyHost::with_cache(&dir).expect("the host starts")
}
