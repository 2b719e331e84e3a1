//! House style as tests. Each rule is a test that names the file and line which breaks it and says what to do instead.
//!
//! [`Tree`] finds the sources of the project; the rules are in `tests/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The project's files, as paths relative to its root.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree that this crate stands in.
    #[must_use]
    pub fn here() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Self { root: root.canonicalize().unwrap_or(root) }
    }

    /// The text of a file, empty if it is not text.
    #[must_use]
    pub fn text(&self, path: &Path) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Whether there is a file or folder at this path.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// All files with this ending, below the folders that hold our own sources.
    #[must_use]
    pub fn files(&self, extension: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open: Vec<PathBuf> = ["runtime", "sdk", "plugins", "examples", "tests", "kernels"]
            .iter()
            .map(|dir| self.root.join(dir))
            .collect();
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name();
                if path.is_dir() && name != "target" {
                    open.push(path);
                } else if path.extension().is_some_and(|found| found == extension) {
                    found.extend(path.strip_prefix(&self.root).map(Path::to_owned));
                }
            }
        }
        found.sort();
        found
    }

    /// Files at the root with this ending.
    #[must_use]
    pub fn root_files(&self, extension: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let names = entries.map(|entry| PathBuf::from(entry.file_name()));
        let mut found: Vec<_> = names.filter(|name| name.extension().is_some_and(|found| found == extension)).collect();
        found.sort();
        found
    }

    /// `cargo metadata` of the workspace, without its dependencies' own.
    ///
    /// # Panics
    /// Cargo can not be run; then no test here can.
    #[must_use]
    #[expect(clippy::expect_used, reason = "without cargo's metadata there is nothing to test")]
    pub fn metadata(&self) -> serde_json::Value {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
            .current_dir(&self.root)
            .output()
            .expect("cargo runs");
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
    }
}

/// Lines of a source file that are not tests: those before its `#[cfg(test)]` module. Files of a `tests` folder or named
/// `tests.rs` have none.
#[must_use]
pub fn code_lines(path: &Path, text: &str) -> usize {
    let is_test = path.components().any(|part| part.as_os_str() == "tests") && !path.starts_with("tests");
    if is_test || path.ends_with("tests.rs") {
        return 0;
    }
    text.lines().take_while(|line| line.trim_end() != "#[cfg(test)]").count()
}
