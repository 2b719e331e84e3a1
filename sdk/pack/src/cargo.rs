//! Runs cargo on a policy crate and makes a component of what comes out.
//!
//! The profile is given here and not in the crate, so that every policy is built alike wherever it lives, and so that a
//! native build of the same crate keeps its own profile.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::component::{ComponentError, componentize, interfaces};

const TARGET: &str = "wasm32-unknown-unknown";

/// Settings of the release profile for a policy: quick to run first, then small. Part of every source hash.
pub(crate) const PROFILE: [&str; 9] = [
    "opt-level=3",
    "lto=\"fat\"",
    "codegen-units=1",
    "panic=\"abort\"",
    "strip=true",
    "debug=false",
    "debug-assertions=false",
    "overflow-checks=false",
    "incremental=false",
];

/// What a policy may import. The host checks again; here the author learns of it early.
const IMPORTS: [&str; 2] = ["pointsman:policy/host@", "pointsman:policy/types@"];

/// Flags that the caller wants for every build for this target, for example a sysroot.
const TARGET_FLAGS: &str = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS";

/// A component, ready to be uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltPolicy {
    /// The package's name.
    pub name: String,
    /// The component's bytes.
    pub component: Vec<u8>,
    /// The compiler, as it names itself.
    pub toolchain: String,
}

/// Why a policy could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder is not a policy crate.
    #[error("{} is not a policy crate: {reason}", dir.display())]
    NotAPolicy {
        /// The folder.
        dir: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The compiler has no standard library for WebAssembly.
    #[error("this Rust toolchain lacks the target {TARGET}; run: rustup target add {TARGET}")]
    MissingTarget,
    /// A program could not be started.
    #[error("can not run {program}: {source}; is Rust installed and in PATH?")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program ran and failed; what it had to say went to standard error.
    #[error("{0} failed; its messages are above")]
    Failed(String),
    /// A program's output was not understood.
    #[error("{program} answered something unexpected: {reason}")]
    Output {
        /// The program.
        program: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// The built module could not be read.
    #[error("can not read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The module is not a policy.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The policy needs something that no host offers.
    #[error(
        "the policy imports {0}; a policy may import pointsman:policy/host only, so a dependency asks for too much"
    )]
    ForbiddenImport(String),
}

/// Builds the policy crate in `dir`. Cargo's progress and messages go to standard error.
///
/// # Errors
/// See [`BuildError`]; each says what to do.
pub fn build_policy(dir: &Path) -> Result<BuiltPolicy, BuildError> {
    let package = Package::find(dir)?;
    if !package.has_cdylib {
        let reason = "its Cargo.toml needs [lib] with crate-type = [\"cdylib\"]";
        return Err(BuildError::NotAPolicy { dir: dir.to_owned(), reason: reason.to_owned() });
    }
    let built = package.build(&["--lib"])?;
    match interfaces(&built.component)?.imports.into_iter().find(|name| !IMPORTS.iter().any(|ok| name.starts_with(ok)))
    {
        Some(import) => Err(BuildError::ForbiddenImport(import)),
        None => Ok(built),
    }
}

/// Builds one example of the crate in `dir`, which must have the crate type `cdylib`. Its imports are not checked: for
/// guests that are wrong on purpose.
///
/// # Errors
/// See [`BuildError`].
pub fn build_example(dir: &Path, example: &str) -> Result<BuiltPolicy, BuildError> {
    let built = Package::find(dir)?.build(&["--example", example])?;
    Ok(BuiltPolicy { name: example.to_owned(), ..built })
}

/// How the compiler that is in charge of `dir` names itself, for example `rustc 1.95.0 (59807616e 2026-04-14)`.
///
/// # Errors
/// [`BuildError::Start`] or [`BuildError::Failed`].
pub fn toolchain(dir: &Path) -> Result<String, BuildError> {
    Ok(answer(rustc(dir).arg("--version"))?.trim().to_owned())
}

/// A crate that cargo knows.
struct Package {
    dir: PathBuf,
    name: String,
    has_cdylib: bool,
    workspace_root: String,
    /// Packages of this machine that lie outside the workspace: folder and name.
    local: Vec<(String, String)>,
}

impl Package {
    fn find(dir: &Path) -> Result<Self, BuildError> {
        let not_a_policy = |reason: &str| BuildError::NotAPolicy { dir: dir.to_owned(), reason: reason.to_owned() };
        let dir = dir.canonicalize().map_err(|error| not_a_policy(&error.to_string()))?;
        let manifest = dir.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(not_a_policy("it has no Cargo.toml"));
        }
        let text = answer(cargo(&dir).args(["metadata", "--format-version=1", "--filter-platform", TARGET]))?;
        let unexpected = |reason: String| BuildError::Output { program: "cargo metadata", reason };
        let metadata: Value = serde_json::from_str(&text).map_err(|error| unexpected(error.to_string()))?;
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let workspace_root = text_of(&metadata["workspace_root"]);
        let package = list(&metadata["packages"])
            .find(|package| path(&package["manifest_path"]) == Some(&manifest))
            .ok_or_else(|| not_a_policy("its Cargo.toml describes no package"))?;
        Ok(Self {
            name: text_of(&package["name"]),
            has_cdylib: list(&package["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "cdylib")),
            local: local_packages(&metadata, &workspace_root),
            workspace_root,
            dir,
        })
    }

    fn build(&self, target: &[&str]) -> Result<BuiltPolicy, BuildError> {
        let flags = self.flags()?;
        let mut build = cargo(&self.dir);
        build.args(["build", "--release", "--target", TARGET, "--message-format=json-render-diagnostics"]).args(target);
        for setting in PROFILE {
            build.arg("--config").arg(format!("profile.release.{setting}"));
        }
        build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        let module = self.module(&answer(&mut build)?)?;
        let core = fs::read(&module).map_err(|source| BuildError::Read { path: module, source })?;
        let toolchain = toolchain(&self.dir)?;
        Ok(BuiltPolicy { name: self.name.clone(), component: componentize(&core)?, toolchain })
    }

    /// Flags for the compiler. Paths of this machine are replaced: they would end up in panic messages, and two machines
    /// would build different bytes.
    fn flags(&self) -> Result<Vec<String>, BuildError> {
        let extra = env::var(TARGET_FLAGS).unwrap_or_default();
        let mut flags: Vec<String> = extra.split_whitespace().map(str::to_owned).collect();
        let libraries = answer(rustc(&self.dir).args(["--print=target-libdir", "--target", TARGET]).args(&flags))?;
        if !Path::new(libraries.trim()).is_dir() {
            return Err(BuildError::MissingTarget);
        }
        let sysroot = answer(rustc(&self.dir).arg("--print=sysroot"))?;
        let version = answer(rustc(&self.dir).arg("-vV"))?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
        let mut replace = |from: &str, to: &str| flags.push(format!("--remap-path-prefix={from}={to}"));
        replace(&self.workspace_root, "/workspace");
        self.local.iter().for_each(|(dir, name)| replace(dir, &format!("/{name}")));
        if let Some(home) = cargo_home() {
            replace(&home.to_string_lossy(), "/cargo");
        }
        replace(&format!("{}/lib/rustlib/src/rust", sysroot.trim()), &format!("/rustc/{commit}"));
        Ok(flags)
    }

    /// The module among cargo's messages, which come one a line.
    fn module(&self, messages: &str) -> Result<PathBuf, BuildError> {
        let manifest = self.dir.join("Cargo.toml");
        for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if path(&message["manifest_path"]) == Some(&manifest) {
                let mut files = list(&message["filenames"]).filter_map(path);
                if let Some(module) = files.find(|file| file.extension().is_some_and(|extension| extension == "wasm")) {
                    return Ok(module.to_owned());
                }
            }
        }
        Err(BuildError::Output { program: "cargo build", reason: "it reported no .wasm file".to_owned() })
    }
}

fn local_packages(metadata: &Value, workspace_root: &str) -> Vec<(String, String)> {
    let local = list(&metadata["packages"]).filter(|package| package["source"].is_null());
    let named =
        local.filter_map(|package| Some((path(&package["manifest_path"])?.parent()?, package["name"].as_str()?)));
    let outside = named.filter(|(dir, _)| !dir.starts_with(workspace_root));
    outside.map(|(dir, name)| (dir.to_string_lossy().into_owned(), name.to_owned())).collect()
}

fn path(value: &Value) -> Option<&Path> {
    value.as_str().map(Path::new)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Cargo as this process was started by, else from PATH; run in `dir`, so that its `rust-toolchain.toml` counts.
fn cargo(dir: &Path) -> Command {
    program("CARGO", "cargo", dir)
}

fn rustc(dir: &Path) -> Command {
    program("RUSTC", "rustc", dir)
}

fn program(variable: &str, default: &str, dir: &Path) -> Command {
    let mut command = Command::new(env::var_os(variable).unwrap_or_else(|| OsString::from(default)));
    command.current_dir(dir);
    command
}

fn cargo_home() -> Option<PathBuf> {
    let default = || env::home_dir().map(|home| home.join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(default)
}

/// Runs a command and returns what it wrote to standard output; standard error is passed through.
fn answer(command: &mut Command) -> Result<String, BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| BuildError::Start { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(BuildError::Failed(program));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
