//! Policies that can be swapped in by name or digest: those that ship inside the binary, and those uploaded since start.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use pointsman_api::service::{Available, PolicyInfo, PolicySource, SwapError};
use pointsman_policy::{Artifact, Digest, SlotKind};

/// Name and component of each shipped policy, by name.
static FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The same, read once.
static SHIPPED: LazyLock<Vec<Shipped>> = LazyLock::new(|| {
    let shipped = |(name, bytes): &(&'static str, &'static [u8])| Shipped {
        name,
        bytes,
        digest: Digest::of(bytes),
        slots: Artifact::new(bytes).map_or_else(|_| Vec::new(), |artifact| artifact.slots().to_vec()),
    };
    FILES.iter().map(shipped).collect()
});

struct Shipped {
    name: &'static str,
    bytes: &'static [u8],
    digest: Digest,
    slots: Vec<SlotKind>,
}

/// Uploaded policies that are remembered; the oldest is forgotten first.
const UPLOADED_MAX: usize = 32;

/// What a command line names: the bytes of a file, or else a name or digest.
pub fn source(policy: &str) -> PolicySource {
    std::fs::read(policy).map_or_else(|_| PolicySource::Name(policy.to_owned()), PolicySource::Bytes)
}

/// The registry of one server.
#[derive(Default)]
pub struct Registry {
    uploaded: Mutex<VecDeque<Uploaded>>,
}

/// A policy that was accepted.
struct Uploaded {
    info: Available,
    bytes: Arc<[u8]>,
    signature: Option<String>,
}

impl Registry {
    /// Finds a policy's bytes.
    ///
    /// # Errors
    /// No policy has this name or digest; or its bytes are not a policy at all.
    pub fn find(&self, source: PolicySource) -> Result<(Arc<[u8]>, Artifact), SwapError> {
        let bytes: Arc<[u8]> = match source {
            PolicySource::Bytes(bytes) => bytes.into(),
            PolicySource::Name(name) => self.named(&name).ok_or_else(|| {
                let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
                SwapError::NotFound(format!(
                    "there is no policy `{name}`; policies: {}, or a sha256: digest",
                    names.join(", ")
                ))
            })?,
        };
        let artifact = Artifact::new(&bytes).map_err(|refused| SwapError::Refused(refused.to_string()))?;
        Ok((bytes, artifact))
    }

    fn named(&self, name: &str) -> Option<Arc<[u8]>> {
        if let Some((_, bytes)) = FILES.iter().find(|(shipped, _)| *shipped == name) {
            return Some((*bytes).into());
        }
        if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.digest.to_string() == name) {
            return Some(shipped.bytes.into());
        }
        let uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        uploaded.iter().find(|it| it.info.policy.digest == name).map(|it| Arc::clone(&it.bytes))
    }

    /// Whether this ships inside the binary, and is as trusted as that.
    pub fn is_shipped(digest: Digest) -> bool {
        SHIPPED.iter().any(|shipped| shipped.digest == digest)
    }

    /// The signature that an uploaded policy came with.
    pub fn signature(&self, digest: Digest) -> Option<String> {
        let uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        uploaded.iter().find(|it| it.info.policy.digest == digest.to_string())?.signature.clone()
    }

    /// Remembers a policy that was accepted, so that it can be named by its digest.
    pub fn remember(&self, info: Available, bytes: Arc<[u8]>, signature: Option<String>) {
        if FILES.iter().any(|(_, shipped)| **shipped == *bytes) {
            return;
        }
        let mut uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        uploaded.retain(|known| known.info.policy.digest != info.policy.digest);
        if uploaded.len() == UPLOADED_MAX {
            uploaded.pop_front();
        }
        uploaded.push_back(Uploaded { info, bytes, signature });
    }

    /// All that can be swapped in.
    pub fn available(&self) -> Vec<Available> {
        let shipped = SHIPPED.iter().map(|shipped| Available {
            policy: PolicyInfo {
                name: shipped.name.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                digest: shipped.digest.to_string(),
            },
            slots: shipped.slots.iter().map(ToString::to_string).collect(),
        });
        let uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        shipped.chain(uploaded.iter().map(|it| it.info.clone())).collect()
    }
}
