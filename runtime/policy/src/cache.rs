//! Compiled code kept from one process to the next, in a folder that belongs to this user alone.
//!
//! Loading machine code is as good as running it, so a file is loaded only if its MAC says that a process with this folder's key wrote
//! it. The MAC covers the digest of the component and everything about the compiler and this processor that the code depends on, so
//! no file can stand in for another. Whatever is wrong with a file, the component is compiled anew; whatever is wrong with the folder,
//! nothing is kept.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, process};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::artifact::Digest;
use crate::limits::CACHED_BYTES_MAX;

const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 32;

/// The folder and its key.
pub(crate) struct CodeCache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
}

impl CodeCache {
    /// Opens the folder, and makes it and its key if there are none.
    ///
    /// # Errors
    /// It can not be made, or others than this user may write to it.
    pub fn open(dir: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let about = fs::symlink_metadata(dir)?;
        if !about.is_dir() || about.mode() & 0o022 != 0 || about.uid() != effective_user()? {
            let why = "the folder of compiled policies must belong to this user, and nobody else may write to it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let path = dir.join("key");
        let key = match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(&path)?,
            other => other?,
        };
        Ok(Self { dir: dir.to_owned(), key })
    }

    /// The code of a component, if it is here and good.
    pub fn load(&self, engine: &Engine, digest: Digest) -> Option<Component> {
        let file = fs::File::open(self.path(digest)).ok()?;
        let mut bytes = Vec::new();
        file.take(CACHED_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let (mac, code) = bytes.split_at_checked(MAC_BYTES)?;
        if code.len() as u64 > CACHED_BYTES_MAX || self.mac(engine, digest, code).verify_slice(mac).is_err() {
            tracing::warn!(%digest, "compiled code was changed or is of another build; it is compiled anew");
            return None;
        }
        // SAFETY: the MAC shows that these are bytes which `keep` wrote: what `Component::serialize` gave for this engine's
        // configuration, on this processor, in this version of the compiler.
        unsafe { Component::deserialize(engine, code) }.ok()
    }

    /// Keeps the code of a component. A failure costs the next process some time, and nothing else.
    pub fn keep(&self, engine: &Engine, digest: Digest, component: &Component) {
        let kept = component.serialize().map_err(io::Error::other).and_then(|code| {
            let mac = self.mac(engine, digest, &code).finalize().into_bytes();
            // Written beside and moved, so that nobody reads half a file.
            let beside = self.dir.join(format!(".{}", process::id()));
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&mac)?;
            file.write_all(&code)?;
            fs::rename(&beside, self.path(digest))
        });
        if let Err(error) = kept {
            tracing::warn!(%digest, %error, "compiled code could not be kept");
        }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.to_string().replace(':', "-"))
    }

    fn mac(&self, engine: &Engine, digest: Digest, code: &[u8]) -> Hmac<Sha256> {
        let mut compatible = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut compatible);
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
        mac.update(digest.to_string().as_bytes());
        mac.update(&compatible.finish().to_le_bytes());
        mac.update(code);
        mac
    }
}

/// The user whom files that this process makes belong to.
fn effective_user() -> io::Result<u32> {
    // The owner of a process's own folder is its effective user.
    fs::metadata("/proc/self").map(|about| about.uid())
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    fs::File::open(path)?.read_exact(&mut key)?;
    Ok(key)
}

fn make_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let beside = path.with_extension(process::id().to_string());
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?.write_all(&key)?;
    // Whoever comes first wins; all then use that key.
    match fs::hard_link(&beside, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::remove_file(&beside)?,
    }
    read_key(path)
}
