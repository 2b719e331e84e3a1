//! What a component says about itself, checked before it is compiled: imports, exports, contract version, sizes.
//!
//! Called by [`crate::artifact`]. Names are the contract: an import that is not on the list below is refused by name, so a
//! policy can never be linked to anything but `host`.

use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::Types;
use wasmparser::{Parser, Payload, Validator, WasmFeatures};

use crate::kind::SlotKind;
use crate::limits::{
    DEFINITION_BYTES_MAX, FUNCTION_BYTES_MAX, MEMORIES_MAX, MEMORY_BYTES_MAX, PARTS_MAX, TABLE_ELEMENTS_MAX,
};
use crate::versions::v0_1;

/// The WebAssembly that policies may use; everything else is refused by the parser and off in the compiler. Not here on
/// purpose: threads, 64-bit and several memories, garbage collection, exceptions, relaxed SIMD, async.
pub const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .difference(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::COMPONENT_MODEL);

/// Every policy package's names start so; the interface, `@` and the version follow.
const PACKAGE: &str = "pointsman:policy/";
const PAGE_BYTES: u64 = 64 << 10;

/// Checks a component against the contract and the limits.
///
/// Returns the slots that it serves, at least one.
///
/// # Errors
/// The first thing that does not fit, in one line.
pub fn verify(component: &[u8]) -> Result<Vec<SlotKind>, String> {
    check_nesting(component)?;
    let types = validate(component)?;
    let mut depth = 0;
    let mut memories = 0;
    let mut exports = Vec::new();
    for part in Parser::new(0).parse_all(component) {
        match part.map_err(|e| e.to_string())? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    check_import(import.map_err(|e| e.to_string())?.name.name, &types)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export.map_err(|e| e.to_string())?.name.name);
                }
            }
            part => check_size(&part, &mut memories)?,
        }
    }
    let slots: Vec<SlotKind> =
        SlotKind::ALL.into_iter().filter(|slot| exports.contains(&v0_1::interface(*slot))).collect();
    if exports.contains(&v0_1::LIFECYCLE) && !slots.is_empty() {
        return Ok(slots);
    }
    exports.iter().try_for_each(|name| check_version(name))?;
    if !exports.contains(&v0_1::LIFECYCLE) {
        return Err(format!("the component does not export `{}`, which every policy must", v0_1::LIFECYCLE));
    }
    let wanted = SlotKind::ALL.map(|slot| format!("`{}`", v0_1::interface(slot))).join(", ");
    Err(format!("the component does not export the interface of any slot; the slots are {wanted}"))
}

/// Bounds how deep definitions can be nested, without looking into them; everything after this may recurse over them.
fn check_nesting(component: &[u8]) -> Result<(), String> {
    let (mut parts, mut definitions) = (0, 0);
    for part in Parser::new(0).parse_all(component) {
        let part = part.map_err(|e| format!("the file is damaged: {e}"))?;
        match &part {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => parts += 1,
            Payload::InstanceSection(_)
            | Payload::CoreTypeSection(_)
            | Payload::ComponentInstanceSection(_)
            | Payload::ComponentAliasSection(_)
            | Payload::ComponentTypeSection(_)
            | Payload::ComponentCanonicalSection(_)
            | Payload::ComponentStartSection { .. }
            | Payload::ComponentImportSection(_)
            | Payload::ComponentExportSection(_) => {
                definitions += part.as_section().map_or(0, |(_, range)| range.len())
            }
            _ => {}
        }
        if parts > PARTS_MAX {
            return Err(format!("the component holds more than {PARTS_MAX} modules and components"));
        }
        if definitions > DEFINITION_BYTES_MAX {
            return Err(format!(
                "the component has more than {DEFINITION_BYTES_MAX} bytes of definitions outside its modules"
            ));
        }
    }
    Ok(())
}

/// Validates a component or core module as a whole.
pub(crate) fn validate(bytes: &[u8]) -> Result<Types, String> {
    let validated = Validator::new_with_features(FEATURES).validate_all(bytes);
    validated.map_err(|e| format!("the file is damaged or uses a feature that is off: {e}"))
}

/// Checks the names in a core module that is to become a component, for the sake of clear reasons. Returns those of its exports.
pub(crate) fn verify_module(module: &[u8]) -> Result<Vec<String>, String> {
    let mut exported = Vec::new();
    for part in Parser::new(0).parse_all(module) {
        match part.map_err(|e| e.to_string())? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(|e| e.to_string())?;
                    if import.module != v0_1::HOST {
                        return Err(forbidden(import.module));
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let name = export.map_err(|e| e.to_string())?.name;
                    check_version(name.split_once('#').map_or(name, |(interface, _)| interface))?;
                    exported.push(name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(exported)
}

/// The reason for refusing an import.
fn forbidden(name: &str) -> String {
    let other = format!("it imports `{name}`; a policy may import `{}` and nothing else", v0_1::HOST);
    check_version(name).err().unwrap_or(other)
}

fn check_import(name: &str, types: &Types) -> Result<(), String> {
    let allowed: &[&str] = match name {
        v0_1::HOST => v0_1::HOST_FUNCTIONS,
        v0_1::TYPES => &[],
        _ => return Err(forbidden(name)),
    };
    let Some(ComponentEntityType::Instance(id)) = types.component_item_for_import(name).map(|item| item.ty) else {
        return Err(format!("the import `{name}` is not an interface"));
    };
    for (export, item) in &types[id].exports {
        let is_type = matches!(item.ty, ComponentEntityType::Type { .. });
        if !is_type && !allowed.contains(&export.as_str()) {
            return Err(format!("the component imports `{export}` of `{name}`, which this host does not offer"));
        }
    }
    Ok(())
}

/// Refuses names of the policy package in another version than the host's.
fn check_version(name: &str) -> Result<(), String> {
    let version = name.strip_prefix(PACKAGE).and_then(|rest| rest.split_once('@')).map(|(_, version)| version);
    match version {
        Some(version) if version != v0_1::VERSION => {
            Err(format!("built for pointsman:policy {version}, this host takes {} (`{name}`)", v0_1::VERSION))
        }
        _ => Ok(()),
    }
}

/// Checks what is declared anywhere in the component, core modules inside it included.
fn check_size(part: &Payload<'_>, memories: &mut usize) -> Result<(), String> {
    match part {
        Payload::MemorySection(section) => {
            for memory in section.clone() {
                let pages = memory.map_err(|e| e.to_string())?.initial;
                *memories += 1;
                if *memories > MEMORIES_MAX {
                    return Err(format!("the component has more than {MEMORIES_MAX} linear memory"));
                }
                if pages > MEMORY_BYTES_MAX as u64 / PAGE_BYTES {
                    return Err(format!(
                        "the memory starts with {pages} pages of 64 KiB, over {MEMORY_BYTES_MAX} bytes"
                    ));
                }
            }
        }
        Payload::TableSection(section) => {
            for table in section.clone() {
                let elements = table.map_err(|e| e.to_string())?.ty.initial;
                if elements > TABLE_ELEMENTS_MAX as u64 {
                    return Err(format!("a table starts with {elements} elements, over {TABLE_ELEMENTS_MAX}"));
                }
            }
        }
        Payload::CodeSectionEntry(body) if body.range().len() > FUNCTION_BYTES_MAX => {
            let len = body.range().len();
            return Err(format!(
                "a function has {len} bytes of code, over {FUNCTION_BYTES_MAX}; split it or build with `-Os`"
            ));
        }
        _ => {}
    }
    Ok(())
}
