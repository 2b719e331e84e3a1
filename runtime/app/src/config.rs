//! From flags as written to a checked configuration of `serve`. Everything that can be refused without opening the model
//! is refused here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use pointsman_policy::{PolicyHost, SlotKind, Trust};
use pointsman_tensor::cpu::SimdLevel;

use crate::cli::ServeArgs;

/// A checked configuration.
pub struct ServeConfig {
    /// A path, or a name for [`crate::fetch`].
    pub model: String,
    /// Name to serve the model under, if not its own.
    pub served_model_name: Option<String>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Stages of each chain.
    pub stages: u32,
    /// Replicas.
    pub chains: u32,
    /// Compute threads.
    pub threads: usize,
    /// Forced instruction set.
    pub simd: Option<SimdLevel>,
    /// Bytes for the KV cache of all chains.
    pub kv_budget: u64,
    /// Whether prompts share what they have in common.
    pub prefix_cache: bool,
    /// Jobs at once on one chain.
    pub max_jobs: u32,
    /// Longest sequence, if shorter than the model's.
    pub max_context: Option<u32>,
    /// Who decides in each slot: a name, a file, or `builtin`.
    pub policies: BTreeMap<SlotKind, String>,
    /// Seed of the policies' random numbers.
    pub seed: u64,
    /// Address of the admin endpoints, if it is one of their own.
    pub admin_listen: Option<SocketAddr>,
    /// Token of the admin endpoints.
    pub admin_token: Option<String>,
    /// Who may bring policies.
    pub trust: Trust,
    /// How long a drain may take.
    pub drain_timeout: Duration,
}

impl TryFrom<ServeArgs> for ServeConfig {
    type Error = anyhow::Error;

    fn try_from(args: ServeArgs) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            model: args.model,
            served_model_name: args.served_model_name,
            listen: args.listen,
            stages: args.stages,
            chains: args.chains,
            threads: args.threads.map_or(cores, |threads| threads as usize),
            simd: args.simd.as_deref().map(simd).transpose()?,
            kv_budget: args.kv_budget.unwrap_or_else(default_kv_budget),
            prefix_cache: args.prefix_cache == "on",
            max_jobs: args.max_jobs,
            max_context: args.max_context,
            policies: slots(&args.policy)?,
            seed: args.seed,
            admin_listen: args.admin_listen,
            admin_token: args.admin_token_file.as_deref().map(read_token).transpose()?,
            trust: trust(&args.trust)?,
            drain_timeout: Duration::from_secs(args.drain_timeout),
        })
    }
}

/// A slot that a server asks, by its name.
///
/// # Errors
/// There is none of this name, or a server does not ask it.
pub fn live_slot(name: &str) -> Result<SlotKind, String> {
    match name.parse()? {
        SlotKind::Place => {
            Err("a server does not place models yet; try such a policy with `pointsman policy test`".into())
        }
        slot => Ok(slot),
    }
}

/// Who decides in each slot: as these words say, else the default.
fn slots(words: &[String]) -> anyhow::Result<BTreeMap<SlotKind, String>> {
    let defaults = [(SlotKind::Route, "route-jsq"), (SlotKind::Batch, "batch-fcfs"), (SlotKind::Cache, "cache-lru")];
    let mut slots: BTreeMap<_, _> = defaults.into_iter().map(|(slot, policy)| (slot, policy.to_owned())).collect();
    for word in words {
        let Some((slot, policy)) = word.split_once('=') else {
            bail!("--policy {word}: write SLOT=NAME, SLOT=FILE or SLOT=builtin, e.g. route=route-jsq");
        };
        let slot = live_slot(slot).map_err(|why| anyhow::anyhow!("--policy {word}: {why}"))?;
        slots.insert(slot, policy.to_owned());
    }
    Ok(slots)
}

fn trust(words: &[String]) -> anyhow::Result<Trust> {
    let mut trust = Trust::default();
    for word in words {
        let Some((slot, file)) = word.split_once('=') else {
            bail!("--trust {word}: write SLOT=FILE, e.g. route=signers.txt");
        };
        let slot = live_slot(slot).map_err(|why| anyhow::anyhow!("--trust {word}: {why}"))?.name();
        let lines = std::fs::read_to_string(file).with_context(|| format!("--trust {word}: read {file}"))?;
        trust.allow(slot, &lines).map_err(|why| anyhow::anyhow!("--trust {word}: {why}"))?;
    }
    Ok(trust)
}

fn simd(word: &str) -> anyhow::Result<SimdLevel> {
    Ok(match word {
        "reference" => SimdLevel::Reference,
        "avx2" => SimdLevel::Avx2,
        "avx512" => SimdLevel::Avx512,
        _ => bail!("--simd {word}: choose avx512, avx2 or reference"),
    })
}

/// Reads a secret from a file, so that it never stands on a command line.
///
/// # Errors
/// The file can not be read, or holds no token.
pub fn read_token(file: &Path) -> anyhow::Result<String> {
    let token =
        std::fs::read_to_string(file).with_context(|| format!("read the admin token from {}", file.display()))?;
    let token = token.trim();
    if token.is_empty() {
        bail!("{} holds no admin token", file.display());
    }
    Ok(token.to_owned())
}

/// Reads a count of bytes: a number, or one with the suffix KiB, MiB or GiB.
///
/// # Errors
/// Anything else, and counts over 2^63.
pub fn bytes(word: &str) -> Result<u64, String> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &word[digits.len()..] {
        "" | "B" => 0,
        "KiB" | "K" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        unit => return Err(format!("unknown unit `{unit}`; write a number of bytes, or KiB, MiB or GiB")),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("`{digits}` is not a whole number"))?;
    number.checked_mul(1 << shift).filter(|n| *n <= i64::MAX as u64).ok_or_else(|| format!("{word} is too large"))
}

/// A quarter of the memory that is free now, between 64 MiB and 2 GiB.
fn default_kv_budget() -> u64 {
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    (free.unwrap_or(4 << 20) * 1024 / 4).clamp(64 << 20, 2 << 30)
}

/// Turns a configuration file into flags. `known` are the valid keys.
///
/// # Errors
/// The file can not be read or is not TOML; an unknown key (the nearest valid one is named); a value of a wrong kind.
pub fn flags_of_file(file: &Path, known: &[&str]) -> anyhow::Result<Vec<OsString>> {
    let text = std::fs::read_to_string(file).context("read the configuration file")?;
    let table: toml::Table = text.parse().context("the configuration file is not TOML")?;
    let mut flags = Vec::new();
    for (key, value) in table {
        if !known.contains(&key.as_str()) {
            let distance = |name: &&&str| strsim::damerau_levenshtein(name, &key);
            let nearest = known.iter().min_by_key(distance).copied().unwrap_or_default();
            bail!("unknown key `{key}`; did you mean `{nearest}`?");
        }
        let values = match value {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        for value in values {
            let word = match value {
                toml::Value::String(word) => word,
                toml::Value::Integer(number) => number.to_string(),
                other => bail!("key `{key}`: a string or a whole number is wanted, not {}", other.type_str()),
            };
            flags.extend([OsString::from(format!("--{key}")), OsString::from(word)]);
        }
    }
    Ok(flags)
}

/// The Wasm host, which keeps compiled policies in the user's cache.
///
/// # Errors
/// It can not start.
pub fn policy_host() -> anyhow::Result<PolicyHost> {
    Ok(match cache_dir() {
        Ok(dir) => PolicyHost::with_cache(&dir.join("compiled"))?,
        Err(_) => PolicyHost::new()?,
    })
}

/// The folder of fetched models: `$POINTSMAN_CACHE`, else `$XDG_CACHE_HOME/pointsman`, else `~/.cache/pointsman`.
///
/// # Errors
/// None of the variables is set.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("POINTSMAN_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("pointsman")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/pointsman")))
        .context("no place for the model cache: set POINTSMAN_CACHE to a folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_units() {
        assert_eq!(bytes("1024"), Ok(1024));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert!(bytes("2 apples").is_err());
        assert!(bytes("99999999999GiB").unwrap_err().contains("too large"));
    }

    #[test]
    fn a_wrong_slot_is_named() {
        let error = slots(&["rout=x".into()]).unwrap_err().to_string();
        assert!(error.contains("`rout`") && error.contains("route"), "{error}");
    }
}
