//! Embeds the built policies of `plugins/dist`, so that the binary needs no file beside it and a new policy needs no edit; and the SDK,
//! for `policy new`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist").canonicalize()?;
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut policies: Vec<_> =
        fs::read_dir(&dist)?.collect::<Result<Vec<_>, _>>()?.iter().map(|entry| entry.path()).collect();
    policies.retain(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    policies.sort();
    let mut table = String::from("[\n");
    for path in policies {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Writing to a string can not fail.
        let _ = writeln!(table, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&out).join("shipped.rs"), table)?;
    fs::write(Path::new(&out).join("sdk.rs"), sdk()?)
}

/// The SDK's sources, for `policy new`.
fn sdk() -> io::Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/guest").canonicalize()?;
    println!("cargo::rerun-if-changed={}", root.join("src").display());
    let mut table = String::from("[\n");
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> =
            fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?.iter().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).map_err(io::Error::other)?.to_string_lossy().into_owned();
                // Writing to a string can not fail.
                let _ = writeln!(table, "    ({name:?}, include_str!({:?})),", path.display().to_string());
            }
        }
    }
    table.push(']');
    Ok(table)
}
