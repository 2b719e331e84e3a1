//! The components that this repository keeps, and what each is built from. Shared with the test that compares them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pointsman_pack::{Sources, source_hash};

/// The shipped policies: sources and components.
pub const PLUGINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins");
/// The hostile guests of the security tests: sources and components.
pub const GUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/security/guests");
/// The contract.
pub const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wit/policy");
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest");

/// What one component is built from.
pub enum Source {
    /// A policy crate.
    Policy(PathBuf),
    /// An example of the crate in [`GUESTS`].
    Example(String),
    /// A module written by hand, in [`GUESTS`].
    Wat(PathBuf),
}

impl Source {
    /// The name of the component.
    pub fn name(&self) -> String {
        match self {
            Self::Policy(path) | Self::Wat(path) => stem(path),
            Self::Example(name) => name.clone(),
        }
    }

    /// The hash of everything that the component is built from.
    pub fn hash(&self) -> io::Result<String> {
        let guests = Path::new(GUESTS);
        match self {
            Self::Policy(dir) => source_hash(dir, Path::new(SDK)),
            Self::Example(name) => Sources::default()
                .file("Cargo.toml", guests.join("Cargo.toml"))
                .file("example.rs", guests.join("examples").join(name).with_extension("rs"))
                .tree("src", &guests.join("src"))?
                .sdk(Path::new(SDK))?
                .hash(),
            Self::Wat(path) => Sources::default()
                .file("module.wat", path)
                .file("worlds.wit", guests.join("wat/worlds.wit"))
                .tree("contract", Path::new(CONTRACT))?
                .hash(),
        }
    }
}

/// The policies that ship: every folder with a crate, save those whose name begins with an underscore.
pub fn plugins() -> io::Result<Vec<Source>> {
    let is_shipped = |dir: &PathBuf| dir.join("Cargo.toml").is_file() && !stem(dir).starts_with('_');
    Ok(files(Path::new(PLUGINS))?.into_iter().filter(is_shipped).map(Source::Policy).collect())
}

/// All hostile guests.
pub fn guests() -> io::Result<Vec<Source>> {
    let guests = Path::new(GUESTS);
    let is_wat = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "wat");
    let examples = files(&guests.join("examples"))?.into_iter().map(|path| Source::Example(stem(&path)));
    let by_hand = files(&guests.join("wat"))?.into_iter().filter(is_wat).map(Source::Wat);
    Ok(examples.chain(by_hand).collect())
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
