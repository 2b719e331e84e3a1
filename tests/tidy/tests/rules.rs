//! The rules. Generated files are exempt from size and wording; they are listed in [`GENERATED`].

use std::collections::BTreeMap;
use std::path::Path;

use pointsman_tidy::{Tree, code_lines};

const GENERATED: [&str; 1] = ["sdk/guest/src/bindings/full_policy.rs"];
const LINES_P90: usize = 350;
const LINES_WALL: usize = 600;

fn sources(tree: &Tree) -> Vec<std::path::PathBuf> {
    let mut files = tree.files("rs");
    files.retain(|path| !GENERATED.iter().any(|generated| path == Path::new(generated)));
    files
}

/// Who may depend on whom among our own crates. Crates of `tests` and `examples` may depend on anything.
fn allowed(krate: &str) -> Option<&'static [&'static str]> {
    Some(match krate {
        "pointsman-engine" | "pointsman-tensor" | "pointsman-sdk" | "pointsman-pack" => &[],
        "pointsman-stage" => &["pointsman-engine", "pointsman-tensor"],
        "pointsman-policy" | "pointsman-api" => &["pointsman-engine"],
        "pointsman" => &[
            "pointsman-api",
            "pointsman-engine",
            "pointsman-pack",
            "pointsman-policy",
            "pointsman-stage",
            "pointsman-tensor",
        ],
        _ => return None,
    })
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let metadata = Tree::here().metadata();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let manifest = package["manifest_path"].as_str().unwrap();
        let plugin: &[&str] = &["pointsman-sdk"];
        let allowed = match allowed(name) {
            Some(allowed) => allowed,
            None if manifest.contains("/plugins/") => plugin,
            None if manifest.contains("/tests/") || manifest.contains("/examples/") => continue,
            None => panic!("{name} has no place in the table of arrows"),
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let ours = dependency["path"].is_string();
            let test_only = dependency["kind"] == "dev";
            if ours && !test_only && !allowed.contains(&other) {
                wrong.push(format!("{name} -> {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that the house does not have: {wrong:?}");
}

#[test]
fn files_are_small() {
    let tree = Tree::here();
    let mut sizes: Vec<_> =
        sources(&tree).into_iter().map(|path| (code_lines(&path, &tree.text(&path)), path)).collect();
    sizes.sort();
    let tall: Vec<_> = sizes.iter().filter(|(lines, _)| *lines > LINES_WALL).collect();
    assert!(tall.is_empty(), "over the wall of {LINES_WALL} lines, split them: {tall:?}");
    let p90 = &sizes[sizes.len() * 9 / 10];
    assert!(p90.0 <= LINES_P90, "the 90th percentile of file sizes is {} lines ({:?}), over {LINES_P90}", p90.0, p90.1);
}

#[test]
fn every_module_says_what_it_is_for() {
    let tree = Tree::here();
    let silent: Vec<_> = sources(&tree).into_iter().filter(|path| !tree.text(path).starts_with("//!")).collect();
    assert!(silent.is_empty(), "files that do not open with `//!`: {silent:?}");
}

#[test]
fn nothing_is_left_for_later() {
    let tree = Tree::here();
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("unimplemented", "!(")];
    let mut found = Vec::new();
    for path in sources(&tree) {
        for (number, line) in tree.text(&path).lines().enumerate() {
            found.extend(
                words
                    .iter()
                    .filter(|word| line.contains(**word))
                    .map(|word| format!("{}:{}: {word}", path.display(), number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "finish it, or write it into an issue: {found:#?}");
}

#[test]
fn documents_name_paths_that_exist() {
    let tree = Tree::here();
    let mut documents = tree.root_files("md");
    documents.extend(tree.files("md"));
    let mut wrong = Vec::new();
    for document in documents {
        let base = document.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        for word in tree.text(&document).split('`').skip(1).step_by(2) {
            let is_path = word.contains('/') && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let ours = ["runtime/", "sdk/", "plugins/", "examples/", "tests/", "kernels/", "./"]
                .iter()
                .any(|top| word.starts_with(top));
            if is_path && ours && !tree.exists(word) && !tree.exists(&format!("{base}/{word}")) {
                wrong.push(format!("{}: {word}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist: {wrong:#?}");
}

#[test]
fn every_policy_has_the_same_shape() {
    let tree = Tree::here();
    let headings = ["Decides", "Reads", "Knobs", "Cost per call", "Good for", "Bad for", "Measured"];
    let mut wrong = BTreeMap::new();
    for manifest in tree.files("toml") {
        let Some(dir) = manifest.parent().filter(|dir| dir.parent() == Some(Path::new("plugins"))) else { continue };
        if !manifest.ends_with("Cargo.toml") {
            continue;
        }
        let readme = tree.text(&dir.join("README.md"));
        let found: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if found != headings {
            wrong.insert(dir.to_owned(), found.join(", "));
        }
    }
    assert!(wrong.is_empty(), "READMEs of policies have the headings {headings:?}; these have others: {wrong:#?}");
}

#[test]
fn the_engine_reads_no_clock_and_starts_no_thread() {
    let tree = Tree::here();
    let banned = ["Instant::now", "SystemTime", "std::thread", "std::fs", "std::net", "HashMap", "HashSet", "std::env"];
    let mut found = Vec::new();
    for path in sources(&tree).into_iter().filter(|path| path.starts_with("runtime/engine/src")) {
        let text = tree.text(&path);
        let code = text.lines().take(code_lines(&path, &text)).filter(|line| !line.trim_start().starts_with("//"));
        for (line, word) in code.flat_map(|line| banned.iter().map(move |word| (line, word))) {
            if line.contains(word) {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "the engine is a pure state machine: {found:#?}");
}
