//! What can not be built is refused with a reason that helps.

use std::path::Path;

use pointsman_pack::{build_policy, componentize, interfaces};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn folders_that_are_no_policy_crates() {
    let refusal = |dir: &str| build_policy(&Path::new(HERE).join(dir)).unwrap_err().to_string();
    assert!(refusal("no/such/folder").contains("is not a policy crate"), "{}", refusal("no/such/folder"));
    assert!(refusal("src").contains("it has no Cargo.toml"), "{}", refusal("src"));
    assert!(refusal("../guest").contains("crate-type"), "{}", refusal("../guest"));
}

#[test]
fn bytes_that_are_no_policies() {
    let empty_module = wat::parse_str("(module)").unwrap();
    let empty_component = wat::parse_str("(component)").unwrap();
    assert!(componentize(b"not wasm").is_err());
    assert!(componentize(&empty_component).is_err());
    assert!(interfaces(b"not wasm").is_err());
    assert!(interfaces(&empty_module).is_err());
    let found = interfaces(&empty_component).unwrap();
    assert!(found.imports.is_empty() && found.exports.is_empty());
}

#[test]
fn a_module_that_does_not_fulfil_its_contract() {
    // A contract is embedded, but nothing that it promises is exported.
    let mut resolve = wit_parser::Resolve::default();
    let (contract, _) = resolve.push_dir(Path::new(HERE).join("../wit/policy")).unwrap();
    let world = resolve.select_world(&[contract], Some("routing-policy")).unwrap();
    let mut module = wat::parse_str("(module (memory (export \"memory\") 1))").unwrap();
    let utf8 = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, utf8, false).unwrap();
    let refusal = componentize(&module).unwrap_err().to_string();
    assert!(refusal.contains("lifecycle"), "{refusal}");
}
