//! From a core module to a component, and a look at what a component imports and exports.
//!
//! All in process: an author needs `cargo` and the `wasm32-unknown-unknown` target, and no other tool.

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm, StringEncoding, metadata};
use wit_parser::{Resolve, WorldItem, WorldKey};

/// The contract, in which the SDK's exports have their types.
const CONTRACT: &str = include_str!("../../wit/policy/policy.wit");

/// The first eight bytes of every component; a core module has another version.
const COMPONENT_MAGIC: &[u8] = b"\0asm\x0d\0\x01\0";

/// A module or component that is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The module carries no contract, or does not fulfil it.
    #[error("can not make a component of this module: {0}")]
    Encode(String),
    /// The bytes are not a component.
    #[error("can not read this component: {0}")]
    Decode(String),
}

/// Makes a component of a core module and validates it. A module that carries the types of its exports keeps them; one that was
/// built with the SDK is given those of the slots that it serves.
///
/// # Errors
/// [`ComponentError::Encode`] when the module is malformed, serves no slot, or misses a function of one.
pub fn componentize(core_module: &[u8]) -> Result<Vec<u8>, ComponentError> {
    encode(core_module).map_err(|error| ComponentError::Encode(error.to_string()))
}

fn encode(core_module: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let (_, bound) = metadata::decode(core_module)?;
    let mut module = core_module.to_vec();
    if bound.resolve.worlds[bound.world].exports.is_empty() {
        embed_contract(&mut module)?;
    }
    let encoded = ComponentEncoder::default().validate(true).module(&module).and_then(|encoder| encoder.encode());
    encoded.map_err(|error| format!("{error:#}").into())
}

/// Embeds the world of the contract, without the interfaces that the module does not export. The host does the same with core
/// modules that are uploaded (`runtime/policy/src/versions`), which may not depend on this crate.
fn embed_contract(module: &mut Vec<u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", CONTRACT)?;
    let world = resolve.select_world(&[package], Some("full-policy"))?;
    let exported = export_names(module)?;
    let serves = |interface: &str| exported.iter().any(|name| name.split('#').next() == Some(interface));
    let unused: Vec<WorldKey> =
        resolve.worlds[world].exports.keys().filter(|key| !serves(&resolve.name_world_key(key))).cloned().collect();
    unused.iter().for_each(|key| drop(resolve.worlds[world].exports.shift_remove(key)));
    if resolve.worlds[world].exports.is_empty() {
        return Err("it exports nothing of the contract; is `export_policy!` missing?".into());
    }
    Ok(wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8, false)?)
}

fn export_names(module: &[u8]) -> Result<Vec<String>, wasmparser::BinaryReaderError> {
    let mut names = Vec::new();
    for part in Parser::new(0).parse_all(module) {
        if let Payload::ExportSection(exports) = part? {
            for export in exports {
                names.push(export?.name.to_owned());
            }
        }
    }
    Ok(names)
}

/// The names of what a component imports and exports, as `package:name/interface@version`, in order of declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// What it needs.
    pub imports: Vec<String>,
    /// What it offers.
    pub exports: Vec<String>,
}

/// Reads the imports and exports of a component.
///
/// # Errors
/// [`ComponentError::Decode`] when `component` is anything else.
pub fn interfaces(component: &[u8]) -> Result<Interfaces, ComponentError> {
    let fail = |why: String| ComponentError::Decode(why);
    if !component.starts_with(COMPONENT_MAGIC) {
        return Err(fail("it does not begin like one".to_owned()));
    }
    let (resolve, world) = match wit_component::decode(component).map_err(|error| fail(format!("{error:#}")))? {
        DecodedWasm::Component(resolve, world) => (resolve, world),
        DecodedWasm::WitPackage(..) => return Err(fail("it holds only interface definitions".to_owned())),
    };
    let world = &resolve.worlds[world];
    let names = |items: &mut dyn Iterator<Item = (&WorldKey, &WorldItem)>| {
        items.map(|(key, _)| resolve.name_world_key(key)).collect()
    };
    Ok(Interfaces { imports: names(&mut world.imports.iter()), exports: names(&mut world.exports.iter()) })
}
