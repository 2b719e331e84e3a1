//! `pointsman:policy@0.1.0`: its names, its records, and typed handles to a guest's exports.
//!
//! The shapes repeat `sdk/wit/policy/policy.wit`; wasmtime compares them with the component's own types when the exports are
//! looked up, so a mismatch is an error at instantiation and never a misread value. Hot calls are flat: scalars and one list
//! of words, which is copied as memory.

use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::Snapshot;
use wasmtime::component::{ComponentNamedList, ComponentType, Instance, Lift, Linker, Lower, TypedFunc, WasmStr};
use wasmtime::error::Context as _;
use wasmtime::{Result, Store, StoreContextMut};
use wit_component::StringEncoding;
use wit_parser::Resolve;

use crate::instance::State;
use crate::journal::Level;
use crate::limits::FIGURE_FUEL;

pub(crate) const VERSION: &str = "0.1.0";
pub(crate) const HOST: &str = "pointsman:policy/host@0.1.0";
pub(crate) const TYPES: &str = "pointsman:policy/types@0.1.0";
pub(crate) const LIFECYCLE: &str = "pointsman:policy/lifecycle@0.1.0";
pub(crate) const ROUTE: &str = "pointsman:policy/route@0.1.0";
/// The contract as it is shipped.
const WIT: &str = include_str!("../../../../sdk/wit/policy/policy.wit");
/// Functions of [`HOST`] that [`link_host`] defines.
pub(crate) const HOST_FUNCTIONS: &[&str] = &["log", "count", "gauge"];

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
struct Chain {
    id: u32,
    capacity: u32,
    busy: u32,
    #[component(name = "free-tokens")]
    free_tokens: u32,
    open: bool,
    service: u64,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Cluster {
    epoch: u64,
    seq: u64,
    chains: Vec<Chain>,
    queued: u32,
}

impl From<&Snapshot> for Cluster {
    fn from(snapshot: &Snapshot) -> Self {
        let chains = snapshot.chains.iter().map(|chain| Chain {
            id: chain.id.0,
            capacity: chain.capacity,
            busy: chain.busy,
            free_tokens: chain.free_tokens,
            open: chain.open,
            service: chain.service.0,
        });
        Self { epoch: snapshot.epoch, seq: snapshot.seq, chains: chains.collect(), queued: snapshot.queued }
    }
}

#[derive(ComponentType, Lift)]
#[component(variant)]
enum Failure {
    #[component(name = "bad-config")]
    BadConfig(String),
    #[component(name = "unsupported")]
    Unsupported(String),
    #[component(name = "internal")]
    Internal(String),
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::BadConfig(why) => format!("bad configuration: {why}"),
            Failure::Unsupported(why) => format!("unsupported: {why}"),
            Failure::Internal(why) => format!("internal: {why}"),
        }
    }
}

/// What `describe` answers, not yet checked.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawDescriptor {
    pub(crate) name: String,
    pub(crate) version: String,
    #[component(name = "state-schema")]
    pub(crate) state_schema: String,
    pub(crate) needs: Inputs,
    pub(crate) metrics: Vec<RawMetric>,
}

// What a policy asks the host to gather for it.
wasmtime::component::flags! {
    Inputs {
        #[component(name = "prefix-overlap")]
        const PREFIX_OVERLAP;
    }
}

/// A figure that a policy wants to keep, not yet checked.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawMetric {
    pub(crate) id: u32,
    pub(crate) kind: RawMetricKind,
    pub(crate) name: String,
    pub(crate) help: String,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[cfg_attr(not(test), expect(dead_code, reason = "made by lifting only"))]
pub(crate) enum RawMetricKind {
    #[component(name = "counter")]
    Counter,
    #[component(name = "gauge")]
    Gauge,
}

/// What a chain was worth to a policy in one decision, as it says; the lowest score is the best.
#[derive(Clone, Copy, Debug, PartialEq, ComponentType, Lift)]
#[component(record)]
pub struct Score {
    /// The chain's id, unchecked.
    pub chain: u32,
    /// Any number at all.
    pub score: f64,
}

/// A policy's state for its successor. The host never looks into it.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Saved {
    pub(crate) schema: String,
    pub(crate) seq: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by lifting only")]
enum RawLevel {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl From<RawLevel> for Level {
    fn from(level: RawLevel) -> Self {
        match level {
            RawLevel::Debug => Self::Debug,
            RawLevel::Info => Self::Info,
            RawLevel::Warn => Self::Warn,
            RawLevel::Error => Self::Error,
        }
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

/// Says in a core module that it implements the contract, which is then held to it when it is made into a component.
pub(crate) fn embed_types(module: &mut Vec<u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", WIT)?;
    let world = resolve.select_world(&[package], Some("routing-policy"))?;
    wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8, false)?;
    Ok(())
}

type InitParams<'a> = (&'a str, Cluster, Option<Saved>);
type PickParams = (u64, u64, u64, u32, u32, u32, u32, u64, u64, u32);
type AffineParams<'a> = (u64, u64, u64, u32, u32, u32, u32, u64, u64, u32, &'a [u64]);
type PullParams<'a> = (u64, u64, u64, u32, &'a [u64]);

/// A guest's exports, looked up and type-checked once.
pub(crate) struct Exports {
    describe: TypedFunc<(), (RawDescriptor,)>,
    init: TypedFunc<InitParams<'static>, (std::result::Result<(), Failure>,)>,
    save: TypedFunc<(), (Option<Saved>,)>,
    dump: TypedFunc<(), (String,)>,
    apply: TypedFunc<(u64, &'static [u64]), ()>,
    pick: TypedFunc<PickParams, (u64,)>,
    pick_affine: TypedFunc<AffineParams<'static>, (u64,)>,
    pull: TypedFunc<PullParams<'static>, (u32,)>,
    trace: TypedFunc<AffineParams<'static>, (Vec<Score>,)>,
}

impl Exports {
    pub(crate) fn find(store: &mut Store<State>, instance: &Instance) -> Result<Self> {
        Ok(Self {
            describe: export(store, instance, LIFECYCLE, "describe")?,
            init: export(store, instance, LIFECYCLE, "init")?,
            save: export(store, instance, LIFECYCLE, "save")?,
            dump: export(store, instance, LIFECYCLE, "dump")?,
            apply: export(store, instance, ROUTE, "apply")?,
            pick: export(store, instance, ROUTE, "pick")?,
            pick_affine: export(store, instance, ROUTE, "pick-affine")?,
            pull: export(store, instance, ROUTE, "pull")?,
            trace: export(store, instance, ROUTE, "trace")?,
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

    /// Two words for each event.
    pub(crate) fn apply(&self, store: &mut Store<State>, seq: u64, words: &[u64]) -> Result<()> {
        self.apply.call(store, (seq, words))
    }

    pub(crate) fn pick(&self, store: &mut Store<State>, ask: &Pick) -> Result<u64> {
        let Pick { seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints, .. } = *ask;
        let flat = (seq, now.0, rnd, tenant, class, prompt, reserve, deadline.0, session, hints);
        self.pick.call(store, flat).map(|(word,)| word)
    }

    /// One word for each chain that holds the beginning of the prompt.
    pub(crate) fn pick_affine(&self, store: &mut Store<State>, ask: &Pick, overlap: &[u64]) -> Result<u64> {
        self.pick_affine.call(store, affine(ask, overlap)).map(|(word,)| word)
    }

    pub(crate) fn trace(&self, store: &mut Store<State>, ask: &Pick, overlap: &[u64]) -> Result<Vec<Score>> {
        self.trace.call(store, affine(ask, overlap)).map(|(scores,)| scores)
    }

    /// Four words for each waiting request.
    pub(crate) fn pull(&self, store: &mut Store<State>, ask: &Pull, words: &[u64]) -> Result<u32> {
        self.pull.call(store, (ask.seq, ask.now.0, ask.rnd, ask.chain.0, words)).map(|(index,)| index)
    }
}

fn affine<'a>(ask: &Pick, overlap: &'a [u64]) -> AffineParams<'a> {
    let Pick { seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints, .. } = *ask;
    (seq, now.0, rnd, tenant, class, prompt, reserve, deadline.0, session, hints, overlap)
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
