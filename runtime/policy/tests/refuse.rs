//! What must not get past the door: damaged, oversized, over-privileged, wrongly built or immediately failing uploads. Each is
//! refused at its stage, with a reason that names what was wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

mod guests;

use guests::{Guest, WIT};
use pointsman_policy::{Artifact, Candidate, PolicyHost, RefuseReason, SlotKind, Stage};

fn prepare(upload: &[u8]) -> Result<Candidate, RefuseReason> {
    PolicyHost::new().unwrap().prepare(SlotKind::Route, &Artifact::new(upload)?, "")
}

#[track_caller]
fn refused(upload: &[u8], stage: Stage, words: &[&str]) {
    let refusal = prepare(upload).unwrap_err();
    assert_eq!(refusal.stage, stage, "{refusal}");
    for word in words {
        assert!(refusal.reason.contains(word), "`{word}` is not in: {refusal}");
    }
    assert!(!refusal.to_string().contains('\n'), "one line: {refusal}");
}

#[test]
fn takes_a_component_and_the_core_module_it_is_made_from() {
    let guest = Guest::default();
    for upload in [guest.component(), guest.typed_module(), guest.module()] {
        let candidate = prepare(&upload).unwrap();
        assert_eq!(&*candidate.descriptor().name, "wat");
        assert_eq!(candidate.descriptor().version, "1.0");
        assert_eq!(candidate.digest(), pointsman_policy::Digest::of(&upload));
        assert!(candidate.digest().to_string().starts_with("sha256:"));
    }
}

#[test]
fn refuses_bytes_that_are_not_webassembly() {
    refused(b"", Stage::Verify, &["not WebAssembly"]);
    refused(b"\x7fELF\x02\x01\x01", Stage::Verify, &["not WebAssembly"]);
    refused(b"(component)", Stage::Verify, &["not WebAssembly"]);
}

#[test]
fn refuses_every_truncation_and_damage_without_panicking() {
    for upload in [Guest::default().component(), Guest::default().typed_module()] {
        // Without its types at the end, a module is still whole.
        let untyped = Guest::default().module().len();
        for len in (0..upload.len()).step_by(7).filter(|len| *len != untyped) {
            assert_eq!(
                Artifact::new(&upload[..len]).err().map(|refusal| refusal.stage),
                Some(Stage::Verify),
                "{len} bytes"
            );
        }
        for at in (0..upload.len()).step_by(5) {
            let mut damaged = upload.clone();
            damaged[at] ^= 0x55;
            // Damage in a constant may leave a policy that is formally correct; it must only be refused without a panic.
            if let Err(refusal) = Artifact::new(&damaged) {
                assert!(!refusal.reason.contains("panic"), "byte {at}: {refusal}");
            }
        }
    }
}

/// `inner` in a section of `id`.
fn section(id: u8, inner: &[u8]) -> Vec<u8> {
    let mut len = inner.len();
    let mut out = vec![id];
    while len > 0x7f {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(inner);
    out
}

const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";

/// A component in a component, `depth` times.
fn nested_components(depth: usize) -> Vec<u8> {
    (0..depth).fold(HEADER.to_vec(), |inner, _| [HEADER, &section(4, &inner)].concat())
}

/// A type section with component types in component types: each declares one type, the next.
fn nested_types(depth: usize) -> Vec<u8> {
    let types = [&[1][..], &[0x41, 1, 1].repeat(depth), &[0x41, 0]].concat();
    [HEADER, &section(7, &types)].concat()
}

/// `list<list<...>>`, each a type of its own that names the one before it, in the signature of an imported function.
fn nested_lists(depth: u32) -> Vec<u8> {
    let mut text = "(type $t0 (list u8))".to_owned();
    for at in 1..depth {
        text += &format!("(type $t{at} (list $t{}))", at - 1);
    }
    let last = depth - 1;
    wat::parse_str(format!("(component {text} (import \"deep\" (func (param \"p\" $t{last}))))")).unwrap()
}

#[test]
fn refuses_deep_nesting_without_overflowing_a_stack() {
    // Within the limits on size, every level is really visited.
    refused(&nested_components(64), Stage::Verify, &["does not export"]);
    refused(&nested_types(5_400), Stage::Verify, &["lifecycle"]);
    refused(&nested_lists(3_000), Stage::Verify, &["nesting is too deep"]);
    let nested = nested_types(4_000);
    let policy = [&Guest::default().component()[..], &nested[HEADER.len()..]].concat();
    assert_eq!(&*prepare(&policy).unwrap().descriptor().name, "wat", "odd, but within the limits, compiler included");
    // Beyond, none is.
    refused(&nested_components(65), Stage::Verify, &["more than 64 modules and components"]);
    refused(&nested_types(300_000), Stage::Verify, &["bytes of definitions"]);
    refused(&nested_lists(20_000), Stage::Verify, &["bytes of definitions"]);
}

#[test]
fn refuses_a_file_over_the_size_limit_before_reading_it() {
    let mut upload = Guest::default().component();
    upload.resize(2 << 20, 0);
    refused(&upload, Stage::Verify, &["2097152 bytes", "1048576"]);
}

#[test]
fn refuses_a_core_module_that_does_not_fit_the_contract() {
    let module = |fields: &str| wat::parse_str(format!("(module {fields})")).unwrap();
    refused(&module(""), Stage::Verify, &["does not export", "lifecycle@0.1.0"]);
    let half = r#"(func (export "pointsman:policy/route@0.1.0#apply") (param i64 i32 i32))"#;
    refused(&module(half), Stage::Verify, &["does not fit the contract", "route@0.1.0"]);
    let wasi = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    refused(&module(wasi), Stage::Verify, &["wasi_snapshot_preview1", "nothing else"]);
    let host = r#"(import "pointsman:policy/host@0.1.0" "exec" (func (param i32 i32)))"#;
    refused(&module(host), Stage::Verify, &["exec"]);
    let newer = Guest::default().wit(WIT.replace("@0.1.0", "@0.2.0"), "0.2.0");
    refused(&newer.typed_module(), Stage::Verify, &["built for pointsman:policy 0.2.0", "this host takes 0.1.0"]);
}

#[test]
fn refuses_every_import_but_log_by_name() {
    let component = |text: &str| wat::parse_str(text).unwrap();
    let clock = component(r#"(component (import "wasi:clocks/monotonic-clock@0.2.0" (instance)))"#);
    refused(&clock, Stage::Verify, &["wasi:clocks/monotonic-clock@0.2.0", "pointsman:policy/host@0.1.0"]);
    let random = component(r#"(component (import "random" (func (result u64))))"#);
    refused(&random, Stage::Verify, &["`random`"]);
    let more = r#"(component (import "pointsman:policy/host@0.1.0" (instance (export "now" (func (result u64))))))"#;
    refused(&component(more), Stage::Verify, &["`now`", "does not offer"]);
    let types = r#"(component (import "pointsman:policy/types@0.1.0" (instance (export "peek" (func (result u64))))))"#;
    refused(&component(types), Stage::Verify, &["`peek`", "does not offer"]);
    let function = r#"(component (import "pointsman:policy/host@0.1.0" (func)))"#;
    refused(&component(function), Stage::Verify, &["not an interface"]);
}

#[test]
fn refuses_another_version_of_the_contract_and_names_both() {
    let newer = Guest::default().wit(WIT.replace("@0.1.0", "@0.2.0"), "0.2.0");
    refused(&newer.component(), Stage::Verify, &["built for pointsman:policy 0.2.0", "this host takes 0.1.0"]);
}

#[test]
fn refuses_a_component_that_serves_no_slot() {
    refused(&wat::parse_str("(component)").unwrap(), Stage::Verify, &["does not export", "lifecycle@0.1.0"]);
    let other = r#"(component (component $c) (instance $i (instantiate $c)) (export "pointsman:policy/route@0.3.0" (instance $i)))"#;
    refused(&wat::parse_str(other).unwrap(), Stage::Verify, &["0.3.0", "0.1.0"]);
}

#[test]
fn refuses_memories_tables_and_functions_over_their_limits() {
    refused(&Guest::default().memory("257").component(), Stage::Verify, &["257 pages"]);
    refused(&Guest::default().fields("(table 10001 funcref)").component(), Stage::Verify, &["10001 elements"]);
    let long = format!("(func {})", "(drop (i32.const 1))".repeat(50_000));
    refused(&Guest::default().fields(long).component(), Stage::Verify, &["bytes of code"]);
    let second = r#"(component (core module (memory 1)) (core module (memory 1)))"#;
    refused(&wat::parse_str(second).unwrap(), Stage::Verify, &["more than 1 linear memory"]);
}

#[test]
fn refuses_features_that_are_off() {
    let core = |field: &str| wat::parse_str(format!("(component (core module {field}))")).unwrap();
    refused(&core("(memory 1 2 shared)"), Stage::Verify, &["feature that is off", "threads"]);
    refused(&core("(memory i64 1)"), Stage::Verify, &["feature that is off", "memory64"]);
    refused(&core("(memory 1) (memory 1)"), Stage::Verify, &["feature that is off", "multi"]);
    refused(&core("(tag)"), Stage::Verify, &["feature that is off", "exceptions"]);
    refused(&core("(type (struct))"), Stage::Verify, &["feature that is off", "gc"]);
}

#[test]
fn refuses_a_call_with_another_signature() {
    let wit = WIT.replace(
        "pull: func(seq: u64, now: u64, rnd: u64, chain: u32, words: list<u64>) -> u32;",
        "pull: func(seq: u64, now: u64, rnd: u64, chain: u32, words: list<s64>) -> u32;",
    );
    assert_ne!(wit, WIT);
    refused(&Guest::default().wit(wit, "0.1.0").component(), Stage::Instantiate, &["`pull`", "signature"]);
}

#[test]
fn refuses_start_code_that_runs_on_or_asks_for_too_much() {
    let looping = Guest::default().fields("(func $go (loop (br 0))) (start $go)");
    refused(&looping.component(), Stage::Instantiate, &["fuel"]);
    let greedy = Guest::default().fields("(func $go (drop (memory.grow (i32.const 255)))) (start $go)");
    refused(&greedy.component(), Stage::Instantiate, &["memory", "16842752"]);
}

#[test]
fn refuses_a_descriptor_that_is_no_short_text() {
    // An address of zeros reads as three empty strings.
    refused(&Guest::default().describe("(i32.const 1024)").component(), Stage::Describe, &["`name` is empty"]);
    refused(&Guest::default().describe("(unreachable)").component(), Stage::Describe, &["unreachable"]);
    let spaced = r#"(data (i32.const 512) "\20\00\00\00\11\00\00\00\13\00\00\00\03\00\00\00\16\00\00\00\04\00\00\00")"#;
    let spaced = Guest::default().fields(spaced).describe("(i32.const 512)");
    refused(&spaced.component(), Stage::Describe, &["`name`", "letters, digits"]);
}

#[test]
fn refuses_a_policy_whose_init_fails_and_shows_its_reason() {
    let failing = r#"(data (i32.const 512) "\01\00\00\00\00\00\00\00\20\00\00\00\11\00\00\00")"#;
    let failing = Guest::default().fields(failing).init("(i32.const 512)");
    refused(&failing.component(), Stage::Init, &["bad configuration: help, I fell over"]);
    refused(&Guest::default().init("(loop (br 0)) (i32.const 96)").component(), Stage::Init, &["fuel"]);
    let host = PolicyHost::new().unwrap();
    let artifact = Artifact::new(&Guest::default().component()).unwrap();
    let refusal = host.prepare(SlotKind::Route, &artifact, &" ".repeat(65_537)).unwrap_err();
    assert!(refusal.stage == Stage::Init && refusal.reason.contains("65537 bytes"), "{refusal}");
}

#[test]
fn refuses_a_policy_that_can_not_answer() {
    refused(&Guest::default().apply("(unreachable)").component(), Stage::Trial, &["apply", "unreachable"]);
    refused(&Guest::default().pick("(i64.const -1)").component(), Stage::Trial, &["0xffffffffffffffff"]);
    refused(&Guest::default().pull("(i32.const 1)").component(), Stage::Trial, &["index 1 of 1"]);
}
