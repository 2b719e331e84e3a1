//! Compiled code kept between processes: taken when it is intact, compiled anew when anything is wrong with it.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails by panicking")]

mod guests;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use guests::Guest;
use pointsman_policy::{Artifact, PolicyHost, SlotKind};

fn prepare(dir: &Path, guest: &Guest) -> String {
    let host = PolicyHost::with_cache(dir).unwrap();
    let artifact = Artifact::new(&guest.component()).unwrap();
    host.prepare(SlotKind::Route, &artifact, "").unwrap().descriptor().name.to_string()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<_> =
        all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("sha256-")).collect();
    kept.sort();
    kept
}

#[test]
fn code_is_kept_once_and_only_this_user_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("compiled");
    prepare(&cache, &Guest::default());
    let kept = files(&cache);
    assert_eq!(kept.len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&cache), mode(&kept[0]), mode(&cache.join("key"))), (0o700, 0o600, 0o600));
    let written = fs::metadata(&kept[0]).unwrap().modified().unwrap();
    prepare(&cache, &Guest::default());
    assert_eq!(fs::metadata(&kept[0]).unwrap().modified().unwrap(), written, "taken, not compiled again");
}

#[test]
fn damaged_foreign_and_exchanged_code_is_compiled_anew() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("compiled");
    let other = Guest::default().pick("(i64.const 1)");
    prepare(&cache, &Guest::default());
    prepare(&cache, &other);
    let kept = files(&cache);
    let [first, second] = kept.as_slice() else { panic!("two files") };
    let good = fs::read(first).unwrap();
    for spoiled in [
        fs::read(second).unwrap(),
        Vec::new(),
        good[..good.len() - 1].to_vec(),
        good.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == good.len() / 2)).collect(),
        good.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 3)).collect(),
    ] {
        fs::write(first, spoiled).unwrap();
        assert_eq!(prepare(&cache, &Guest::default()), "wat");
        assert_eq!(prepare(&cache, &other), "wat");
        assert_eq!(fs::read(first).unwrap().len(), good.len(), "written again");
    }
    // Another key means another writer.
    fs::write(cache.join("key"), [1; 32]).unwrap();
    assert_eq!(prepare(&cache, &Guest::default()), "wat");
    assert_eq!(prepare(&cache, &other), "wat");
    assert_ne!(fs::read(first).unwrap()[..32], good[..32]);
}

#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("compiled");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    prepare(&cache, &Guest::default());
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
}
