//! From a core module to a component, and a look at what a component imports and exports.
//!
//! All in process: an author needs `cargo` and the `wasm32-unknown-unknown` target, and no other tool.

use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{WorldItem, WorldKey};

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

/// Makes a component of a core module in which an SDK has embedded its contract, and validates it.
///
/// # Errors
/// [`ComponentError::Encode`] when the module is malformed, has no contract, or misses an export of it.
pub fn componentize(core_module: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let encode = || ComponentEncoder::default().validate(true).module(core_module)?.encode();
    encode().map_err(|error| ComponentError::Encode(format!("{error:#}")))
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
