//! `pointsman:policy@0.1.0`: its names, its records, and typed handles to a guest's exports.
//!
//! The shapes repeat `sdk/wit/policy/policy.wit`; wasmtime compares them with the component's own types when the exports are
//! looked up, so a mismatch is an error at instantiation and never a misread value. Hot calls are flat: scalars and one list
//! of words, which is copied as memory.

use pointsman_engine::port::{Pick, Pull, Waiting};
use pointsman_engine::snapshot::{RouteEvent, Snapshot};
use wasmtime::component::{ComponentNamedList, ComponentType, Instance, Lift, Linker, Lower, TypedFunc, WasmStr};
use wasmtime::error::Context as _;
use wasmtime::{Result, Store, StoreContextMut};
use wit_component::StringEncoding;
use wit_parser::Resolve;

use crate::instance::State;
use crate::journal::Level;

pub(crate) const VERSION: &str = "0.1.0";
pub(crate) const HOST: &str = "pointsman:policy/host@0.1.0";
pub(crate) const TYPES: &str = "pointsman:policy/types@0.1.0";
pub(crate) const LIFECYCLE: &str = "pointsman:policy/lifecycle@0.1.0";
pub(crate) const ROUTE: &str = "pointsman:policy/route@0.1.0";
/// The contract as it is shipped.
const WIT: &str = include_str!("../../../../sdk/wit/policy/policy.wit");
/// Functions of [`HOST`] that [`link_host`] defines.
pub(crate) const HOST_FUNCTIONS: &[&str] = &["log"];

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
}

/// A policy's state for its successor. The host never looks into it.
#[derive(Clone, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Saved {
    schema: String,
    seq: u64,
    bytes: Vec<u8>,
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

/// Defines all that a policy may import: `host.log`. The message is read in place; what it costs is charged as fuel.
pub(crate) fn link_host(linker: &mut Linker<State>) -> Result<()> {
    linker.instance(HOST)?.func_wrap(
        "log",
        |mut store: StoreContextMut<'_, State>, (level, message): (RawLevel, WasmStr)| {
            crate::journal::log(&mut store, level.into(), &message)
        },
    )
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
type PullParams<'a> = (u64, u64, u64, u32, &'a [u64]);

/// A guest's exports, looked up and type-checked once.
pub(crate) struct Exports {
    describe: TypedFunc<(), (RawDescriptor,)>,
    init: TypedFunc<InitParams<'static>, (std::result::Result<(), Failure>,)>,
    save: TypedFunc<(), (Option<Saved>,)>,
    apply: TypedFunc<(u64, &'static [u64]), ()>,
    pick: TypedFunc<PickParams, (u64,)>,
    pull: TypedFunc<PullParams<'static>, (u32,)>,
    /// Reused from call to call, so that hot calls do not allocate.
    words: Vec<u64>,
}

impl Exports {
    pub(crate) fn find(store: &mut Store<State>, instance: &Instance) -> Result<Self> {
        Ok(Self {
            describe: export(store, instance, LIFECYCLE, "describe")?,
            init: export(store, instance, LIFECYCLE, "init")?,
            save: export(store, instance, LIFECYCLE, "save")?,
            apply: export(store, instance, ROUTE, "apply")?,
            pick: export(store, instance, ROUTE, "pick")?,
            pull: export(store, instance, ROUTE, "pull")?,
            words: Vec::with_capacity(4 * pointsman_engine::limits::PULL_WINDOW_MAX),
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

    pub(crate) fn apply(&mut self, store: &mut Store<State>, seq: u64, events: &[RouteEvent]) -> Result<()> {
        self.words.clear();
        self.words.extend(events.iter().flat_map(|event| event.words()));
        self.apply.call(store, (seq, &self.words))
    }

    pub(crate) fn pick(&self, store: &mut Store<State>, ask: &Pick) -> Result<u64> {
        let Pick { seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints } = *ask;
        let flat = (seq, now.0, rnd, tenant, class, prompt, reserve, deadline.0, session, hints);
        self.pick.call(store, flat).map(|(word,)| word)
    }

    pub(crate) fn pull(&mut self, store: &mut Store<State>, ask: &Pull, waiting: &[Waiting]) -> Result<u32> {
        self.words.clear();
        self.words.extend(waiting.iter().flat_map(|request| {
            let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
            [request.id.0, pair(request.tenant, request.class), pair(request.prompt, request.reserve), request.waited.0]
        }));
        self.pull.call(store, (ask.seq, ask.now.0, ask.rnd, ask.chain.0, &self.words)).map(|(index,)| index)
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
