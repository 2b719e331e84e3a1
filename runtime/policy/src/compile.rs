//! Machine code from a verified component, and the clock behind the wall-time backstop.
//!
//! There is one [`Machine`] in a process. Compiling takes tens of milliseconds: callers do it off the engine's thread.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use wasmparser::WasmFeatures;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, OptLevel, Strategy};

use crate::artifact::{Artifact, Digest};
use crate::cache::CodeCache;
use crate::instance::State;
use crate::limits::{STACK_BYTES_MAX, TICK};
use crate::verify::FEATURES;
use crate::versions::v0_1;

/// Compiler, linker and ticker. Lives as long as any code that it compiled.
pub(crate) struct Machine {
    engine: Engine,
    linker: Linker<State>,
    cache: Option<CodeCache>,
    /// Dropping it stops the ticker.
    _ticker: SyncSender<()>,
}

/// A policy's code, linked and ready to be instantiated. Immutable and shared.
pub(crate) struct Compiled {
    pub(crate) pre: InstancePre<State>,
    pub(crate) digest: Digest,
    /// Keeps the ticker going.
    _machine: Arc<Machine>,
}

impl Machine {
    pub(crate) fn new(cache: Option<CodeCache>) -> wasmtime::Result<Arc<Self>> {
        let engine = Engine::new(&config())?;
        let mut linker = Linker::new(&engine);
        v0_1::link_host(&mut linker)?;
        let _ticker = start_ticker(&engine)?;
        Ok(Arc::new(Self { engine, linker, cache, _ticker }))
    }

    /// Compiles and links; the only imports that are ever defined are those of the contract.
    pub(crate) fn compile(self: &Arc<Self>, artifact: &Artifact) -> wasmtime::Result<Compiled> {
        // What is compiled is the component: of a core module that is uploaded, another contract makes another one.
        let key = Digest::of(artifact.component());
        let kept = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, key));
        let component = match kept {
            Some(component) => component,
            None => {
                let component = Component::from_binary(&self.engine, artifact.component())?;
                if let Some(cache) = &self.cache {
                    cache.keep(&self.engine, key, &component);
                }
                component
            }
        };
        let pre = self.linker.instantiate_pre(&component)?;
        Ok(Compiled { pre, digest: artifact.digest(), _machine: Arc::clone(self) })
    }
}

/// Results must not depend on the processor, so NaNs are canonical. Concurrency support would make each call about four
/// times slower and is not compiled in. There are no backtraces: the functions of a shipped policy have no names, and the SDK
/// logs a panic with its place.
fn config() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES_MAX)
        .wasm_backtrace_max_frames(None)
        .wasm_features(WasmFeatures::all().difference(FEATURES), false)
        .wasm_features(FEATURES, true);
    config
}

fn start_ticker(engine: &Engine) -> wasmtime::Result<SyncSender<()>> {
    let engine = engine.weak();
    let (alive, stopped) = sync_channel::<()>(0);
    thread::Builder::new().name("policy-ticker".into()).spawn(move || {
        while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let Some(engine) = engine.upgrade() else { break };
            engine.increment_epoch();
        }
    })?;
    Ok(alive)
}
