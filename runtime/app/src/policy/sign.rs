//! `pointsman policy sign`: keys, and signatures beside components.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use pointsman_policy::trust::SecretKey;
use pointsman_policy::{Artifact, CONTRACTS, SlotKind};
use serde_json::json;

/// Makes a key, or signs `file`.
pub(super) fn sign(
    file: Option<&Path>,
    key: Option<&Path>,
    new_key: Option<&Path>,
    slots: &[SlotKind],
    valid_days: Option<u64>,
    as_json: bool,
) -> anyhow::Result<()> {
    match (new_key, file, key) {
        (Some(path), ..) => make_key(path, as_json),
        (None, Some(file), Some(key)) => sign_file(file, key, slots, valid_days, as_json),
        _ => bail!("name a component and --key, or --new-key"),
    }
}

fn make_key(path: &Path, as_json: bool) -> anyhow::Result<()> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| anyhow!("the system has no randomness: {error}"))?;
    let key = SecretKey::from_random(random);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.as_mut().map_err(|error| anyhow!("make {}: {error}", path.display()))?;
    writeln!(file, "{}", key.to_text()).with_context(|| format!("write {}", path.display()))?;
    if as_json {
        println!("{}", json!({ "path": path, "public_key": key.signer().to_string() }));
    } else {
        println!("{}", key.signer());
    }
    Ok(())
}

fn sign_file(
    file: &Path,
    key: &Path,
    slots: &[SlotKind],
    valid_days: Option<u64>,
    as_json: bool,
) -> anyhow::Result<()> {
    let text = fs::read_to_string(key).with_context(|| format!("read {}", key.display()))?;
    let key = SecretKey::parse(&text).map_err(|why| anyhow!("{}: {why}", key.display()))?;
    let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let artifact = Artifact::new(&bytes).with_context(|| file.display().to_string())?;
    let (digest, served) = (artifact.digest(), artifact.slots());
    if let Some(foreign) = slots.iter().find(|slot| !served.contains(slot)) {
        bail!("{} does not serve the slot {foreign}", file.display());
    }
    let slots: Vec<String> = if slots.is_empty() { served } else { slots }.iter().map(ToString::to_string).collect();
    let contract = CONTRACTS.last().context("this host takes no contract")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let not_after = valid_days.map(|days| now.saturating_add(days.saturating_mul(86_400)));
    let mut path = file.as_os_str().to_owned();
    path.push(".sig");
    let path = PathBuf::from(path);
    fs::write(&path, key.sign(digest, &slots, contract, not_after))
        .with_context(|| format!("write {}", path.display()))?;
    if as_json {
        println!("{}", json!({ "path": path, "digest": digest.to_string(), "signer": key.signer().to_string() }));
    } else {
        println!("{}: {digest} by {}", path.display(), key.signer());
    }
    Ok(())
}
