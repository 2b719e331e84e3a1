//! Small hand-made policies for tests: a core module in text, whose calls can be replaced one by one, made into a component with
//! the real contract.
//!
//! By default every call succeeds at once and `pick` dispatches to chain 0. [`Guest::armed`] misbehaves only for requests of
//! tenant [`ARMED`], so that the policy passes its trial.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::expect_used, reason = "a helper of a test fails by panicking")]

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// The tenant whose requests set off an armed guest.
pub const ARMED: u32 = 666;

/// The contract as it is shipped.
pub const WIT: &str = include_str!("../../../../sdk/wit/policy/policy.wit");

/// A policy in the making.
pub struct Guest {
    wit: String,
    version: &'static str,
    memory: &'static str,
    fields: String,
    describe: String,
    init: String,
    save: String,
    dump: String,
    apply: String,
    pick: String,
    pull: String,
    trace: String,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            wit: WIT.into(),
            version: "0.1.0",
            memory: "2",
            fields: String::new(),
            describe: "(i32.const 200)".into(),
            init: "(i32.const 96)".into(),
            save: "(i32.const 128)".into(),
            dump: "(i32.const 48)".into(),
            apply: String::new(),
            pick: "(i64.const 0)".into(),
            pull: "(i32.const 0)".into(),
            trace: "(i32.const 128)".into(),
        }
    }
}

impl Guest {
    /// Builds against another contract, with its version.
    pub fn wit(mut self, wit: String, version: &'static str) -> Self {
        (self.wit, self.version) = (wit, version);
        self
    }

    /// Limits of the memory, as in the text format.
    pub fn memory(mut self, limits: &'static str) -> Self {
        self.memory = limits;
        self
    }

    /// Further fields of the module: tables, functions, globals, `start`.
    pub fn fields(mut self, text: impl Into<String>) -> Self {
        self.fields = text.into();
        self
    }

    /// Body of `describe`; its result is the address of the record (200 holds a good one).
    pub fn describe(mut self, body: impl Into<String>) -> Self {
        self.describe = body.into();
        self
    }

    /// Body of `init`; its result is the address of the outcome (96 holds success).
    pub fn init(mut self, body: impl Into<String>) -> Self {
        self.init = body.into();
        self
    }

    /// Body of `save`; its result is the address of the option (128 holds none).
    pub fn save(mut self, body: impl Into<String>) -> Self {
        self.save = body.into();
        self
    }

    /// Body of `dump`; its result is the address of the text (48 holds an empty one).
    pub fn dump(mut self, body: impl Into<String>) -> Self {
        self.dump = body.into();
        self
    }

    /// Body of `trace`; its result is the address of the list (128 holds an empty one).
    pub fn trace(mut self, body: impl Into<String>) -> Self {
        self.trace = body.into();
        self
    }

    /// Body of `apply`.
    pub fn apply(mut self, body: impl Into<String>) -> Self {
        self.apply = body.into();
        self
    }

    /// Body of `pick`; its result is the packed decision.
    pub fn pick(mut self, body: impl Into<String>) -> Self {
        self.pick = body.into();
        self
    }

    /// Body of `pull`; its result is the index.
    pub fn pull(mut self, body: impl Into<String>) -> Self {
        self.pull = body.into();
        self
    }

    /// `body` runs in `pick` for tenant [`ARMED`] only.
    pub fn armed(self, body: &str) -> Self {
        self.pick(format!("(if (i32.eq (local.get $tenant) (i32.const {ARMED})) (then {body})) (i64.const 0)"))
    }

    /// The core module without interface types.
    pub fn module(&self) -> Vec<u8> {
        let Self { version, memory, fields, describe, init, save, dump, apply, pick, pull, trace, .. } = self;
        let asked = "(param $seq i64) (param $now i64) (param $rnd i64) (param $tenant i32) (param $class i32)
    (param $prompt i32) (param $reserve i32) (param $deadline i64) (param $session i64) (param $hints i32)";
        let text = format!(
            r#"(module
  (import "pointsman:policy/host@{version}" "log" (func $log (param i32 i32 i32)))
  (import "pointsman:policy/host@{version}" "count" (func $count (param i32 i64)))
  (import "pointsman:policy/host@{version}" "gauge" (func $gauge (param i32 f64)))
  (memory (export "memory") {memory})
  (global $heap (mut i32) (i32.const 4096))
  (data (i32.const 16) "wat1.0none")
  (data (i32.const 32) "help, I fell over")
  (data (i32.const 200) "\10\00\00\00\03\00\00\00\13\00\00\00\03\00\00\00\16\00\00\00\04\00\00\00")
  {fields}
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (if (i32.gt_u (global.get $heap) (i32.const 130000)) (then (unreachable)))
    (local.get $at))
  (func (export "pointsman:policy/lifecycle@{version}#describe") (result i32) {describe})
  (func (export "pointsman:policy/lifecycle@{version}#init")
    (param $config i32) (param $config-len i32) (param $epoch i64) (param $seq i64) (param $chains i32)
    (param $chains-len i32) (param $queued i32) (param $previous i32) (param $schema i32) (param $schema-len i32)
    (param $saved-seq i64) (param $bytes i32) (param $bytes-len i32) (result i32)
    (global.set $heap (i32.const 4096))
    {init})
  (func (export "pointsman:policy/lifecycle@{version}#save") (result i32) {save})
  (func (export "pointsman:policy/lifecycle@{version}#dump") (result i32) {dump})
  (func (export "pointsman:policy/route@{version}#apply") (param $seq i64) (param $words i32) (param $len i32)
    (global.set $heap (i32.const 4096))
    {apply})
  (func (export "pointsman:policy/route@{version}#pick") {asked} (result i64) {pick})
  (func (export "pointsman:policy/route@{version}#pick-affine") {asked} (param $overlap i32) (param $overlap-len i32)
    (result i64)
    (global.set $heap (i32.const 4096))
    {pick})
  (func (export "pointsman:policy/route@{version}#trace") {asked} (param $overlap i32) (param $overlap-len i32) (result i32)
    (global.set $heap (i32.const 4096))
    {trace})
  (func (export "pointsman:policy/route@{version}#pull")
    (param $seq i64) (param $now i64) (param $rnd i64) (param $chain i32) (param $words i32) (param $len i32) (result i32)
    (global.set $heap (i32.const 4096))
    {pull}))"#
        );
        wat::parse_str(text).expect("the guest's text is well-formed")
    }

    /// The core module with embedded interface types, as a build leaves it.
    pub fn typed_module(&self) -> Vec<u8> {
        let mut module = self.module();
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.wit).expect("the contract parses");
        let world = resolve.select_world(&[package], Some("routing-policy")).expect("the contract has the world");
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
            .expect("the world can be embedded");
        module
    }

    /// The component.
    pub fn component(&self) -> Vec<u8> {
        let mut encoder = ComponentEncoder::default();
        let encoded = encoder.module(&self.typed_module()).and_then(|encoder| encoder.encode());
        encoded.expect("the guest implements its contract")
    }
}
