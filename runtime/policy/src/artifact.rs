//! The door: bytes of bounded size become a verified component with a digest, or are refused.
//!
//! A component is taken as it is. A core module, which is what `cargo build` leaves, is wrapped into a component here. Nothing is
//! compiled yet.

use std::fmt;

use sha2::{Digest as _, Sha256};
use wasmparser::{Parser, Payload};

use crate::kind::SlotKind;
use crate::limits::UPLOAD_BYTES_MAX;
use crate::refuse::{RefuseReason, Stage, contain};
use crate::verify;
use crate::versions::v0_1;

/// SHA-256 of the bytes that were uploaded: what `sha256sum` says of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Four words, for the decision log.
    pub(crate) fn words(self) -> [u64; 4] {
        let (words, _) = self.0.as_chunks();
        std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// The inverse of [`Self::words`].
    pub(crate) fn from_words(words: [u64; 4]) -> Self {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A component that keeps to the contract, and the digest of the file that it came from.
pub struct Artifact {
    component: Vec<u8>,
    digest: Digest,
    slots: Vec<SlotKind>,
}

impl Artifact {
    /// Takes an upload.
    ///
    /// # Errors
    /// It is too large, not WebAssembly, a core module that does not fit the contract, or does not pass [`verify::verify`].
    pub fn new(upload: &[u8]) -> Result<Self, RefuseReason> {
        contain(Stage::Verify, || {
            if upload.len() > UPLOAD_BYTES_MAX {
                let (len, max) = (upload.len(), UPLOAD_BYTES_MAX);
                return Err(format!("the file has {len} bytes, and at most {max} are taken"));
            }
            let component = if Parser::is_component(upload) {
                upload.to_vec()
            } else if Parser::is_core_wasm(upload) {
                componentize(upload)?
            } else {
                return Err(
                    "the file is not WebAssembly: it starts with neither a component's nor a module's header".into()
                );
            };
            let slots = verify::verify(&component)?;
            Ok(Self { component, digest: Digest::of(upload), slots })
        })
    }

    /// The component's bytes.
    #[must_use]
    pub fn component(&self) -> &[u8] {
        &self.component
    }

    /// The digest of the upload.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The slots that it serves, at least one.
    #[must_use]
    pub fn slots(&self) -> &[SlotKind] {
        &self.slots
    }
}

/// Wraps a core module into a component of the contract's world.
///
/// The interface types that a build embeds in the module are thrown away and the contract's own put in their place: reading
/// foreign ones is not safe (a damaged package can send their parser into endless recursion), and nothing else than the
/// contract would be taken anyway.
fn componentize(module: &[u8]) -> Result<Vec<u8>, String> {
    verify::validate(module)?;
    let exports = verify::verify_module(module)?;
    let mut module = without_types(module)?;
    v0_1::embed_types(&mut module, &exports).map_err(|e| format!("{e:#}"))?;
    let mut encoder = wit_component::ComponentEncoder::default();
    let encoded = encoder.validate(true).module(&module).and_then(|encoder| encoder.encode());
    encoded.map_err(|e| format!("the core module does not fit the contract: {e:#}"))
}

/// The module without its `component-type` sections.
fn without_types(module: &[u8]) -> Result<Vec<u8>, String> {
    let mut kept = Vec::with_capacity(module.len());
    let mut from = 0;
    for part in Parser::new(0).parse_all(module) {
        let part = part.map_err(|e| e.to_string())?;
        let end = match &part {
            Payload::Version { range, .. } => range.end,
            part => match part.as_section() {
                Some((_, range)) => range.end,
                None => continue,
            },
        };
        // A section begins where the one before it ends: its range leaves out its own header.
        let typed = matches!(&part, Payload::CustomSection(section) if section.name().starts_with("component-type"));
        if !typed {
            kept.extend_from_slice(&module[from..end]);
        }
        from = end;
    }
    Ok(kept)
}
