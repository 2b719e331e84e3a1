//! `pointsman:policy@0.1.0`: its names, its records, and typed handles to a guest's exports.
//!
//! The shapes repeat `sdk/wit/policy/policy.wit`; wasmtime compares them with the component's own types when the exports are
//! looked up, so a mismatch is an error at instantiation and never a misread value. Hot calls are flat: scalars and one list
//! of words, which is copied as memory.

mod calls;
mod place;
mod records;

use pointsman_engine::snapshot::Snapshot;
use wasmtime::component::{ComponentNamedList, Instance, Lift, Linker, Lower, TypedFunc, WasmStr};
use wasmtime::error::Context as _;
use wasmtime::{Result, Store, StoreContextMut};
use wit_component::StringEncoding;
use wit_parser::{Resolve, WorldKey};

use crate::instance::State;
use crate::kind::SlotKind;
use crate::limits::FIGURE_FUEL;
use calls::Calls;
use records::{Cluster, Failure, RawLevel};
pub(crate) use records::{Inputs, RawDescriptor, RawMetric, RawMetricKind, Saved, Score};

pub(crate) const VERSION: &str = "0.1.0";
pub(crate) const HOST: &str = "pointsman:policy/host@0.1.0";
pub(crate) const TYPES: &str = "pointsman:policy/types@0.1.0";
pub(crate) const LIFECYCLE: &str = "pointsman:policy/lifecycle@0.1.0";
const ROUTE: &str = "pointsman:policy/route@0.1.0";
const BATCH: &str = "pointsman:policy/batch@0.1.0";
const CACHE: &str = "pointsman:policy/cache@0.1.0";
const PLACE: &str = "pointsman:policy/place@0.1.0";
/// The contract as it is shipped.
const WIT: &str = include_str!("../../../../../sdk/wit/policy/policy.wit");
/// Functions of [`HOST`] that [`link_host`] defines.
pub(crate) const HOST_FUNCTIONS: &[&str] = &["log", "count", "gauge"];

/// The interface of a slot.
pub(crate) fn interface(slot: SlotKind) -> &'static str {
    match slot {
        SlotKind::Route => ROUTE,
        SlotKind::Batch => BATCH,
        SlotKind::Cache => CACHE,
        SlotKind::Place => PLACE,
    }
}

/// Defines all that a policy may import: outputs. A message is read in place; what it costs is charged as fuel.
pub(crate) fn link_host(linker: &mut Linker<State>) -> Result<()> {
    let mut host = linker.instance(HOST)?;
    host.func_wrap("log", |mut store: StoreContextMut<'_, State>, (level, message): (RawLevel, WasmStr)| {
        crate::journal::log(&mut store, level.into(), &message)
    })?;
    host.func_wrap("count", |mut store: StoreContextMut<'_, State>, (id, by): (u32, u64)| {
        crate::journal::charge(&mut store, FIGURE_FUEL)?;
        store.data().figures.count(id, by);
        Ok(())
    })?;
    host.func_wrap("gauge", |mut store: StoreContextMut<'_, State>, (id, value): (u32, f64)| {
        crate::journal::charge(&mut store, FIGURE_FUEL)?;
        store.data().figures.gauge(id, value);
        Ok(())
    })
}

/// Says in a core module that it implements those interfaces of the contract that it exports functions of. It is held to that when
/// it is made into a component.
pub(crate) fn embed_types(
    module: &mut Vec<u8>,
    exports: &[String],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", WIT)?;
    let world = resolve.select_world(&[package], Some("full-policy"))?;
    let serves = |interface: &str| exports.iter().any(|name| name.split('#').next() == Some(interface));
    let unused: Vec<WorldKey> =
        resolve.worlds[world].exports.keys().filter(|key| !serves(&resolve.name_world_key(key))).cloned().collect();
    for key in unused {
        resolve.worlds[world].exports.shift_remove(&key);
    }
    wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8, false)?;
    Ok(())
}

type InitParams<'a> = (&'a str, Cluster, Option<Saved>);

/// Typed handles to a guest's exports: what every policy has, and the calls of one slot.
pub(crate) struct Exports {
    describe: TypedFunc<(), (RawDescriptor,)>,
    init: TypedFunc<InitParams<'static>, (std::result::Result<(), Failure>,)>,
    save: TypedFunc<(), (Option<Saved>,)>,
    dump: TypedFunc<(), (String,)>,
    pub(crate) calls: Calls,
}

impl Exports {
    /// Looks the exports up and compares their types with the contract's.
    pub(crate) fn find(store: &mut Store<State>, instance: &Instance, slot: SlotKind) -> Result<Self> {
        Ok(Self {
            describe: export(store, instance, LIFECYCLE, "describe")?,
            init: export(store, instance, LIFECYCLE, "init")?,
            save: export(store, instance, LIFECYCLE, "save")?,
            dump: export(store, instance, LIFECYCLE, "dump")?,
            calls: Calls::find(store, instance, slot)?,
        })
    }

    pub(crate) fn describe(&self, store: &mut Store<State>) -> Result<RawDescriptor> {
        self.describe.call(store, ()).map(|(descriptor,)| descriptor)
    }

    /// The inner error is the policy's own.
    pub(crate) fn init(
        &self,
        store: &mut Store<State>,
        config: &str,
        snapshot: &Snapshot,
        previous: Option<Saved>,
    ) -> Result<std::result::Result<(), String>> {
        let (outcome,) = self.init.call(store, (config, Cluster::from(snapshot), previous))?;
        Ok(outcome.map_err(String::from))
    }

    pub(crate) fn save(&self, store: &mut Store<State>) -> Result<Option<Saved>> {
        self.save.call(store, ()).map(|(saved,)| saved)
    }

    pub(crate) fn dump(&self, store: &mut Store<State>) -> Result<String> {
        self.dump.call(store, ()).map(|(text,)| text)
    }
}

fn export<P, R>(store: &mut Store<State>, instance: &Instance, interface: &str, name: &str) -> Result<TypedFunc<P, R>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let interface_index = instance.get_export_index(&mut *store, None, interface);
    let index = interface_index.and_then(|index| instance.get_export_index(&mut *store, Some(&index), name));
    let index = index.with_context(|| format!("`{interface}` has no function `{name}`"))?;
    let function = instance.get_typed_func(store, index);
    function.with_context(|| format!("`{name}` of `{interface}` has another signature than this host's"))
}
