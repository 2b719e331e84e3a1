//! Rebuilds the components that this repository keeps: `dist plugins` or `dist guests`.
//!
//! Called by `plugins/build.sh` and `tests/security/guests/build.sh`.

mod source;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use pointsman_pack::{BuiltPolicy, Manifest, build_example, build_policy, componentize, toolchain};
use wit_component::StringEncoding;
use wit_parser::Resolve;

use crate::source::{CONTRACT, GUESTS, PLUGINS, Source};

fn main() -> ExitCode {
    match rebuild() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rebuild() -> Result<(), Box<dyn Error>> {
    let (sources, root) = match std::env::args().nth(1).as_deref() {
        Some("plugins") => (source::plugins()?, Path::new(PLUGINS)),
        Some("guests") => (source::guests()?, Path::new(GUESTS)),
        _ => return Err("say which: plugins or guests".into()),
    };
    let built = sources.iter().map(|source| Ok((build(source)?, source.hash()?)));
    let manifest = Manifest::write(&root.join("dist"), built.collect::<Result<_, Box<dyn Error>>>()?)?;
    for entry in manifest.entries {
        println!("{:>7} bytes  {}  {}", entry.bytes, entry.sha256, entry.name);
    }
    Ok(())
}

fn build(source: &Source) -> Result<BuiltPolicy, Box<dyn Error>> {
    Ok(match source {
        Source::Policy(dir) => build_policy(dir)?,
        Source::Example(name) => build_example(Path::new(GUESTS), name)?,
        Source::Wat(path) => {
            let component = assemble(path, &source.name())?;
            BuiltPolicy { name: source.name(), component, toolchain: toolchain(Path::new(GUESTS))? }
        }
    })
}

/// Makes a component of a module in text form. Its world is the one of `worlds.wit` that has its name, if there is one,
/// else that of every routing policy.
fn assemble(path: &Path, name: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut resolve = Resolve::default();
    let (contract, _) = resolve.push_dir(CONTRACT)?;
    let worlds = resolve.push_file(Path::new(GUESTS).join("wat/worlds.wit"))?;
    let own = resolve.packages[worlds].worlds.get(name).copied();
    let world = match own {
        Some(world) => world,
        None => resolve.select_world(&[contract], Some("routing-policy"))?,
    };
    let mut module = wat::parse_bytes(&fs::read(path)?)?.into_owned();
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
    Ok(componentize(&module)?)
}
