//! The list of components that are kept beside their sources: what each was built from, with what, into what.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cargo::BuiltPolicy;
use crate::source::sha256_hex;

const FILE: &str = "manifest.toml";
const HEAD: &str = "# Written by build.sh together with the components; never edited by hand.\n\n";

/// One component of a [`Manifest`]. Its file is `<name>.wasm` beside the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the policy.
    pub name: String,
    /// Hash of all its sources, see [`crate::Sources::hash`].
    pub source_hash: String,
    /// Hash of the file.
    pub sha256: String,
    /// Length of the file.
    pub bytes: u64,
    /// The compiler that built it.
    pub toolchain: String,
}

/// What is in a folder of built components.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Ascending by name.
    #[serde(rename = "policy")]
    pub entries: Vec<Entry>,
}

/// A manifest that can not be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is not a manifest.
    #[error("{}: {reason}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
}

impl Manifest {
    /// Reads `manifest.toml` in `dir`.
    ///
    /// # Errors
    /// A file that is missing or not a manifest.
    pub fn read(dir: &Path) -> Result<Self, ManifestError> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path).map_err(|source| ManifestError::File { path: path.clone(), source })?;
        toml::from_str(&text).map_err(|error| ManifestError::Text { path, reason: error.to_string() })
    }

    /// Writes the built components, each with the hash of its sources, and their manifest into `dir`. Components of
    /// earlier builds that are not among them are removed.
    ///
    /// # Errors
    /// A file that can not be written.
    pub fn write(dir: &Path, mut built: Vec<(BuiltPolicy, String)>) -> Result<Self, ManifestError> {
        built.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        fs::create_dir_all(dir).map_err(|source| ManifestError::File { path: dir.to_owned(), source })?;
        remove_components(dir).map_err(|source| ManifestError::File { path: dir.to_owned(), source })?;
        let mut entries = Vec::new();
        for (policy, source_hash) in built {
            let path = dir.join(format!("{}.wasm", policy.name));
            fs::write(&path, &policy.component).map_err(|source| ManifestError::File { path, source })?;
            entries.push(Entry {
                sha256: sha256_hex(&policy.component),
                bytes: policy.component.len() as u64,
                name: policy.name,
                toolchain: policy.toolchain,
                source_hash,
            });
        }
        let (manifest, path) = (Self { entries }, dir.join(FILE));
        let text = toml::to_string(&manifest)
            .map_err(|error| ManifestError::Text { path: path.clone(), reason: error.to_string() })?;
        fs::write(&path, HEAD.to_owned() + &text).map_err(|source| ManifestError::File { path, source })?;
        Ok(manifest)
    }
}

fn remove_components(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
