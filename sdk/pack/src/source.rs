//! One number for all sources of a component: it changes when any of them does, and does not depend on where they lie.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cargo::PROFILE;

/// A set of source files, each under a name that is the same on every machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    files: BTreeMap<String, PathBuf>,
}

impl Sources {
    /// Adds one file under `name`.
    #[must_use]
    pub fn file(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.files.insert(name.to_owned(), path.into());
        self
    }

    /// Adds all files below `dir`, under `name/…`.
    ///
    /// # Errors
    /// A folder that can not be read, or a file whose name is not Unicode.
    pub fn tree(mut self, name: &str, dir: &Path) -> io::Result<Self> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let file = path.file_name().and_then(|file| file.to_str());
            let file = file.ok_or_else(|| io::Error::other(format!("{}: not Unicode", path.display())))?;
            let name = format!("{name}/{file}");
            self = if path.is_dir() { self.tree(&name, &path)? } else { self.file(&name, path) };
        }
        Ok(self)
    }

    /// The SDK in `dir`, on which every policy is built.
    ///
    /// # Errors
    /// As [`Self::tree`].
    pub fn sdk(self, dir: &Path) -> io::Result<Self> {
        self.file("sdk/Cargo.toml", dir.join("Cargo.toml")).tree("sdk/src", &dir.join("src"))
    }

    /// SHA-256 over the build settings and the names and contents of all files, in hexadecimal.
    ///
    /// # Errors
    /// A file that can not be read.
    pub fn hash(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        PROFILE.iter().for_each(|setting| add(setting.as_bytes()));
        for (name, path) in &self.files {
            add(name.as_bytes());
            add(&fs::read(path)?);
        }
        Ok(hex(&hash.finalize()))
    }
}

/// The hash of the sources of the policy crate in `policy`, built on the SDK in `sdk`.
///
/// # Errors
/// A file that can not be read.
pub fn source_hash(policy: &Path, sdk: &Path) -> io::Result<String> {
    Sources::default().file("Cargo.toml", policy.join("Cargo.toml")).tree("src", &policy.join("src"))?.sdk(sdk)?.hash()
}

/// The SHA-256 of `bytes` in hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(root: &Path) -> (PathBuf, PathBuf) {
        let (policy, sdk) = (root.join("any/policy"), root.join("sdk"));
        for dir in [&policy, &sdk] {
            fs::create_dir_all(dir.join("src/deep")).unwrap();
            fs::write(dir.join("Cargo.toml"), "[package]").unwrap();
            fs::write(dir.join("src/lib.rs"), "fn a() {}").unwrap();
            fs::write(dir.join("src/deep/mod.rs"), "fn b() {}").unwrap();
        }
        (policy, sdk)
    }

    #[test]
    fn the_hash_depends_on_every_file_and_on_no_path() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (policy_1, sdk_1) = policy(one.path());
        let (policy_2, sdk_2) = policy(two.path());
        let hash = source_hash(&policy_1, &sdk_1).unwrap();
        assert_eq!(hash, source_hash(&policy_2, &sdk_2).unwrap());

        for file in ["any/policy/Cargo.toml", "any/policy/src/deep/mod.rs", "sdk/Cargo.toml", "sdk/src/lib.rs"] {
            let path = two.path().join(file);
            let before = fs::read(&path).unwrap();
            fs::write(&path, "changed").unwrap();
            assert_ne!(hash, source_hash(&policy_2, &sdk_2).unwrap(), "{file}");
            fs::write(&path, before).unwrap();
        }
        fs::rename(policy_2.join("src/deep/mod.rs"), policy_2.join("src/deep/other.rs")).unwrap();
        assert_ne!(hash, source_hash(&policy_2, &sdk_2).unwrap(), "a file was renamed");
    }

    #[test]
    fn hexadecimal_is_what_sha256sum_prints() {
        assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
