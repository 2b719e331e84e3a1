//! The components that are kept in this repository were built from the sources beside them.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly in its helpers too")]

#[path = "../examples/dist/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pointsman_pack::{BuildError, Manifest, build_policy, interfaces, sha256_hex, toolchain};
use source::{GUESTS, PLUGINS, Source};

/// Holds a folder of components against its manifest and its sources.
fn check(root: &str, sources: &[Source], rebuild: &str) {
    let dist = Path::new(root).join("dist");
    let manifest = Manifest::read(&dist).unwrap();
    let recorded: BTreeMap<_, _> = manifest.entries.iter().map(|entry| (entry.name.clone(), entry)).collect();
    let names: Vec<_> = recorded.keys().cloned().collect();
    let mut expected: Vec<_> = sources.iter().map(Source::name).collect();
    expected.sort();
    assert_eq!(names, expected, "run {rebuild}");
    for source in sources {
        let name = source.name();
        let entry = recorded[&name];
        assert_eq!(entry.source_hash, source.hash().unwrap(), "{name}: its sources or the SDK changed; run {rebuild}");
        let bytes = fs::read(dist.join(&name).with_extension("wasm")).unwrap();
        assert_eq!(entry.sha256, sha256_hex(&bytes), "{name}: the file is not the recorded one; run {rebuild}");
        assert_eq!(entry.bytes, bytes.len() as u64, "{name}");
    }
    let files = fs::read_dir(&dist).unwrap().count();
    assert_eq!(files, sources.len() + 1, "{}: a file that the manifest does not list", dist.display());
}

#[test]
fn shipped_policies_were_built_from_these_sources() {
    check(PLUGINS, &source::plugins().unwrap(), "plugins/build.sh");
}

#[test]
fn hostile_guests_were_built_from_these_sources() {
    check(GUESTS, &source::guests().unwrap(), "tests/security/guests/build.sh");
}

#[test]
fn shipped_policies_import_the_host_and_export_the_slot_and_nothing_else() {
    for source in source::plugins().unwrap() {
        let path = Path::new(PLUGINS).join("dist").join(source.name()).with_extension("wasm");
        let found = interfaces(&fs::read(path).unwrap()).unwrap();
        let named =
            |names: &[&str]| names.iter().map(|name| format!("pointsman:policy/{name}@0.1.0")).collect::<Vec<_>>();
        // A policy that writes nothing to the log but its last words imports as much as one that does.
        assert_eq!(found.imports, named(&["host", "types"]), "{}", source.name());
        let name = source.name();
        let slot = name.split('-').next().unwrap();
        assert_eq!(found.exports, named(&["lifecycle", slot]), "{name}");
    }
}

#[test]
fn the_recorded_toolchain_builds_the_same_bytes_again() {
    let manifest = Manifest::read(&Path::new(PLUGINS).join("dist")).unwrap();
    for entry in manifest.entries {
        let dir = Path::new(PLUGINS).join(&entry.name);
        if toolchain(&dir).unwrap() != entry.toolchain {
            eprintln!("{}: not rebuilt, it was built with {}", entry.name, entry.toolchain);
            continue;
        }
        match build_policy(&dir) {
            Ok(built) => assert_eq!(sha256_hex(&built.component), entry.sha256, "{}", entry.name),
            Err(error @ BuildError::MissingTarget) => eprintln!("{}: not rebuilt: {error}", entry.name),
            Err(error) => panic!("{}: {error}", entry.name),
        }
    }
}

#[test]
fn components_hold_no_path_of_the_machine_that_built_them() {
    let here = Path::new(PLUGINS).parent().unwrap().canonicalize().unwrap();
    let forbidden = [here.to_str().unwrap(), "/home/", "/root/", "/Users/", "/tmp/"];
    for (root, sources) in [(PLUGINS, source::plugins().unwrap()), (GUESTS, source::guests().unwrap())] {
        for source in sources {
            let bytes = fs::read(Path::new(root).join("dist").join(source.name()).with_extension("wasm")).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert_eq!(forbidden.iter().find(|path| text.contains(**path)), None, "{}", source.name());
        }
    }
}
