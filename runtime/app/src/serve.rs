//! `pointsman serve`: builds the parts, in order, and takes them down again.
//!
//! Start: the port opens first and answers "loading"; then the model is packed, while the tokenizer and the policies
//! are made ready on threads of their own; then chains, engine and driver start, and requests are taken. Stop: a first
//! signal drains (running requests finish, new ones get 503), a second one, or the drain's deadline, ends what is left.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail, ensure};
use pointsman_api::service::{ModelInfo, PolicySource};
use pointsman_api::text::ModelText;
use pointsman_api::{ApiState, Routes};
use pointsman_engine::ids::ChainId;
use pointsman_engine::request::ModelLimits;
use pointsman_engine::{ChainConfig, Engine, EngineConfig, Prefill};
use pointsman_policy::limits::RECORD_BYTES_MAX;
use pointsman_policy::{Candidate, DecisionLog, Guard, SlotKind, Slots};
use pointsman_stage::{Chain, ChainOptions, Model, ModelCard};
use pointsman_tensor::cpu::Cpu;
use pointsman_tensor::kv::bytes_per_token;
use pointsman_tensor::weights::Gguf;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, info};
use crate::config::{ServeConfig, policy_host};
use crate::driver::Driver;
use crate::model::{Located, locate, vocabulary};
use crate::service::{App, Running};

/// Tokens in a KV block.
const BLOCK_TOKENS: u32 = 32;

/// Requests that may wait for a chain; more are refused with 429.
const QUEUE_MAX: u32 = 256;

/// What the slots do by themselves and nobody has written down yet.
const NOTICES_MAX: usize = 64;

/// How long clients may take to read the end of their answers when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Threads for HTTP; they hardly compute.
const HTTP_THREADS: usize = 2;

/// Serves until a signal.
///
/// # Errors
/// Whatever keeps it from starting; nothing after that.
pub fn run(config: ServeConfig) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build()?;
    let outcome = runtime.block_on(serve(config));
    // A model that is still being loaded, or a client that takes no answer, must not hold the process.
    runtime.shutdown_background();
    outcome
}

async fn serve(config: ServeConfig) -> anyhow::Result<()> {
    let started = Instant::now();
    let listener = listen(config.listen, "--listen").await?;
    let admin = match config.admin_listen {
        Some(address) if !address.ip().is_loopback() && config.admin_token.is_none() => {
            bail!("--admin-listen {address}: without --admin-token-file, /admin answers to this machine only");
        }
        Some(address) => Some(listen(address, "--admin-listen").await?),
        None => None,
    };
    let address = listener.local_addr()?;
    let app = Arc::new(App::new(policy_host()?, config.trust.clone()));
    let state = ApiState::new(Arc::clone(&app) as _, Arc::clone(&app) as _, config.admin_token.clone());
    let drain_timeout = config.drain_timeout;

    let (stop, stopped) = tokio::sync::watch::channel(());
    let http = |listener, routes| {
        let mut stopped = stopped.clone();
        let closed = async move {
            // A dropped sender is the word.
            let _ = stopped.changed().await;
        };
        tokio::spawn(pointsman_api::serve(listener, pointsman_api::router(state.clone(), routes), closed))
    };
    let mut listeners = Vec::new();
    if let Some(admin) = admin {
        eprintln!("admin on http://{}", admin.local_addr()?);
        listeners.push(http(admin, Routes::Admin));
        listeners.push(http(listener, Routes::Clients));
    } else {
        listeners.push(http(listener, Routes::All));
    }

    let mut signals = Signals::new()?;
    let loading = {
        let app = Arc::clone(&app);
        tokio::task::spawn_blocking(move || load(&config, &app, &state))
    };
    let engine = tokio::select! {
        loaded = loading => loaded.context("loading the model panicked")??,
        () = signals.next() => return Ok(()),
    };
    eprintln!("ready on http://{address} after {:.2} s", started.elapsed().as_secs_f64());

    signals.next().await;
    drain(&app, &mut signals, drain_timeout).await;
    drop(stop);
    let closed = async {
        for listener in listeners {
            listener.await.context("the HTTP server panicked")??;
        }
        anyhow::Ok(())
    };
    let Ok(closed) = tokio::time::timeout(CLOSE_TIMEOUT, closed).await else {
        eprintln!("some clients did not take the end of their answers; their connections are cut");
        return Ok(());
    };
    closed?;
    drop(app);
    engine.join().map_err(|_| anyhow!("the engine's thread panicked"))
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address} (another server may use it; choose another address with {flag})"))
}

/// Lets running requests finish; a second signal or the deadline ends them.
async fn drain(app: &App, signals: &mut Signals, limit: Duration) {
    eprintln!("draining: running requests may go on for {} s; a second signal ends them", limit.as_secs());
    app.drain();
    let idle = async {
        while app.has_work() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let why = tokio::select! {
        () = idle => return,
        () = signals.next() => "a second signal ended the server",
        () = tokio::time::sleep(limit) => "the server's drain timeout has passed",
    };
    eprintln!("{why}");
    app.abort(why);
}

/// SIGTERM and SIGINT.
struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Loads everything and opens for requests. Returns the engine's thread.
fn load(config: &ServeConfig, app: &Arc<App>, state: &ApiState) -> anyhow::Result<thread::JoinHandle<()>> {
    let located = locate(&config.model)?;
    let gguf = Gguf::open(&located.path)?;
    let cpu = Arc::new(Cpu::new(config.threads, config.simd)?);
    let (model, text, candidates) = thread::scope(|scope| {
        let text = scope.spawn(|| anyhow::Ok(ModelText::new(vocabulary(gguf.metadata())?)?));
        let candidates = scope.spawn(|| prepare_policies(config, app));
        let model = Model::load(&gguf, cpu.as_ref(), &mut |_, _| {});
        (model, text.join(), candidates.join())
    });
    let model = model?;
    let text = text.map_err(|_| anyhow!("reading the vocabulary panicked"))??;
    let candidates = candidates.map_err(|_| anyhow!("preparing the policies panicked"))??;
    drop(gguf);

    let card = model.card().clone();
    let (blocks, token_bytes) = kv_blocks(config, &card)?;
    let limits = ModelLimits { context_tokens: context(config, &card, blocks)?, vocab: u32::try_from(card.vocab)? };
    let (report, results) = crossbeam_channel::bounded((config.chains * config.stages) as usize);
    let chains = (0..config.chains).map(|id| {
        let report = report.clone();
        let options = ChainOptions {
            chain: ChainId(id),
            stages: config.stages as usize,
            kv_blocks: blocks,
            block_tokens: BLOCK_TOKENS,
        };
        // The driver outlives the chains, so that the send can only fail at the very end.
        Chain::spawn(&model, Arc::clone(&cpu), options, Box::new(move |result| drop(report.send(result))))
    });
    let chains = chains.collect::<Result<Vec<_>, _>>()?;
    let engine = Engine::new(&EngineConfig {
        chains: vec![ChainConfig { jobs_max: config.max_jobs, kv_blocks: blocks, stages: config.stages }; chains.len()],
        block_tokens: BLOCK_TOKENS,
        model: limits,
        seed: config.seed,
        queue_max: QUEUE_MAX,
        prefill: Prefill::default(),
        prefix_cache: config.prefix_cache,
    })?;

    let facts = Facts {
        config,
        located: &located,
        card: &card,
        cpu: &cpu,
        model: &model,
        blocks,
        token_bytes,
        candidates: &candidates,
    };
    facts.print();
    let metrics = facts.metrics();
    let (mut taps, mut logs) = (BTreeMap::new(), BTreeMap::new());
    for slot in SlotKind::LIVE {
        let (tap, log) = DecisionLog::start(RECORD_BYTES_MAX)?;
        taps.insert(slot, tap);
        logs.insert(slot, log);
    }
    let mut slots = Slots::new(|slot| taps.remove(&slot).unwrap_or_default(), app.host.quarantine());
    for (slot, candidate) in candidates {
        drop(slots.get(slot).map(|slot| slot.swap_in(candidate, Guard::default())));
    }
    let (notices, noticed) = crossbeam_channel::bounded(NOTICES_MAX);
    admin::follow(app, noticed)?;
    let (driver, thread) = Driver::spawn(engine, slots, chains, results, notices)?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let id = config.served_model_name.clone().unwrap_or(located.name);
    state.set_model(ModelInfo { id, created, limits }, text);
    app.start(Running { driver, logs, facts: metrics });
    Ok(thread)
}

/// The policies that decide from the start; none for slots of the builtin.
fn prepare_policies(config: &ServeConfig, app: &App) -> anyhow::Result<BTreeMap<SlotKind, Candidate>> {
    let named = config.policies.iter().filter(|(_, policy)| *policy != "builtin");
    let candidates = named.map(|(slot, policy)| {
        let (source, signature) = match std::fs::read(policy) {
            Ok(bytes) => (PolicySource::Bytes(bytes), std::fs::read_to_string(format!("{policy}.sig")).ok()),
            Err(_) => (PolicySource::Name(policy.clone()), None),
        };
        let candidate = app.prepare(*slot, source, "", signature);
        Ok((*slot, candidate.with_context(|| format!("--policy {slot}={policy}"))?))
    });
    candidates.collect()
}

/// KV blocks of each chain, and bytes of a token in all layers.
fn kv_blocks(config: &ServeConfig, card: &ModelCard) -> anyhow::Result<(u32, u64)> {
    let token_bytes = bytes_per_token(card.layers, card.heads) as u64;
    let blocks = config.kv_budget / u64::from(config.chains) / (token_bytes * u64::from(BLOCK_TOKENS));
    ensure!(
        blocks > 0,
        "--kv-budget: {} bytes hold no block of {BLOCK_TOKENS} tokens for each of {} chains; a token takes {token_bytes} bytes",
        config.kv_budget,
        config.chains
    );
    Ok((u32::try_from(blocks).unwrap_or(u32::MAX), token_bytes))
}

/// Longest sequence: what the model was made for, what the operator allows, and what one chain's store holds.
fn context(config: &ServeConfig, card: &ModelCard, blocks: u32) -> anyhow::Result<u32> {
    let wanted = u32::try_from(card.context_length)?.min(config.max_context.unwrap_or(u32::MAX));
    let holds = blocks.saturating_mul(BLOCK_TOKENS);
    if holds < wanted {
        eprintln!("the context is cut from {wanted} to {holds} tokens, which is what --kv-budget holds on each chain");
    }
    Ok(wanted.min(holds))
}

/// What was chosen, for people and for `/metrics`: no fallback is silent.
struct Facts<'a> {
    config: &'a ServeConfig,
    located: &'a Located,
    card: &'a ModelCard,
    cpu: &'a Cpu,
    model: &'a Model<Cpu>,
    blocks: u32,
    token_bytes: u64,
    candidates: &'a BTreeMap<SlotKind, Candidate>,
}

impl Facts<'_> {
    fn policy(&self, slot: SlotKind) -> String {
        self.candidates.get(&slot).map_or_else(
            || "builtin".to_owned(),
            |candidate| {
                let info = info(candidate.descriptor(), candidate.digest());
                format!("{} {} {}", info.name, info.version, info.digest)
            },
        )
    }

    fn print(&self) {
        let (config, card) = (self.config, self.card);
        let tokens = u64::from(self.blocks) * u64::from(BLOCK_TOKENS);
        eprintln!("pointsman {}", env!("CARGO_PKG_VERSION"));
        eprintln!(
            "  model   {} ({}, {} layers) from {}",
            self.located.name,
            card.architecture,
            card.layers,
            self.located.path.display()
        );
        eprintln!("  weights {} MB packed once, read through mmap", self.model.weight_bytes() / 1_000_000);
        eprintln!("  device  {}", self.cpu.describe());
        eprintln!("  chains  {} of {} stages, {} jobs at once each", config.chains, config.stages, config.max_jobs);
        eprintln!("  kv      f16, {} bytes a token, {tokens} tokens fit on each chain", self.token_bytes);
        for slot in SlotKind::LIVE {
            let trust = &self.config.trust;
            let open = trust.is_any() && !trust.is_needed(slot.name());
            eprintln!(
                "  {:<7} {}{}",
                slot.name(),
                self.policy(slot),
                if open { "; takes unsigned policies" } else { "" }
            );
        }
        if !config.listen.ip().is_loopback() {
            eprintln!("  warning: {} can be reached from other machines, and requests need no key", config.listen);
        }
    }

    fn metrics(&self) -> String {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
        format!(
            "# HELP pointsman_build What runs: version, device, weight reader and KV codec.\n\
             # TYPE pointsman_build gauge\n\
             pointsman_build{{version=\"{}\",device=\"{}\",reader=\"mmap\",kv=\"f16\"}} 1\n\
             # HELP pointsman_kv_bytes_per_token Bytes that one token takes in the KV store, all layers.\n\
             # TYPE pointsman_kv_bytes_per_token gauge\n\
             pointsman_kv_bytes_per_token {}\n",
            env!("CARGO_PKG_VERSION"),
            escape(&self.cpu.describe()),
            self.token_bytes,
        )
    }
}
