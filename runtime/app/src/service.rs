//! What the HTTP layer sees of the rest, for requests: [`App`] runs them through the driver. What it does for operators is in
//! [`crate::admin`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pointsman_api::service::{BoxFuture, CancelOnDrop, Readiness, Service, Submission};
use pointsman_engine::request::{Reject, Request};
use pointsman_engine::stats::Stats;
use pointsman_policy::{DecisionLog, PolicyHost, Shadow, SlotKind, Trust};
use tokio::sync::Semaphore;

use crate::audit::Audit;
use crate::driver::DriverHandle;
use crate::policies::Registry;

/// What is there once the model is loaded.
pub struct Running {
    /// The engine's thread.
    pub driver: DriverHandle,
    /// What was decided in each slot.
    pub logs: BTreeMap<SlotKind, DecisionLog>,
    /// Lines for `/metrics` that never change.
    pub facts: String,
}

/// The running application. Answers before the model is loaded, too.
pub struct App {
    pub(crate) host: PolicyHost,
    pub(crate) registry: Registry,
    pub(crate) trust: Trust,
    pub(crate) shadows: Mutex<BTreeMap<SlotKind, Shadow>>,
    pub(crate) audit: Arc<Audit>,
    /// Preparing a policy costs a core for some milliseconds: one at a time, so that streams keep the rest.
    pub(crate) preparing: Semaphore,
    running: OnceLock<Running>,
    draining: AtomicBool,
}

impl App {
    /// An application without a model yet. `trust` says who may bring policies.
    pub fn new(host: PolicyHost, trust: Trust) -> Self {
        Self {
            host,
            trust,
            registry: Registry::default(),
            shadows: Mutex::default(),
            audit: Arc::default(),
            preparing: Semaphore::new(1),
            running: OnceLock::new(),
            draining: AtomicBool::new(false),
        }
    }

    /// The model is loaded and the engine runs: requests are taken from now on.
    pub fn start(&self, running: Running) {
        // There is one caller, once.
        let _ = self.running.set(running);
    }

    /// The engine and its logs, once there are any.
    pub fn running(&self) -> Option<&Running> {
        self.running.get()
    }

    /// Whether requests run or wait.
    pub fn has_work(&self) -> bool {
        let stats = self.stats();
        stats.running + stats.waiting > 0
    }

    /// Ends every request with a failure.
    pub fn abort(&self, why: &str) {
        if let Some(running) = self.running() {
            running.driver.abort(why);
        }
    }

    /// Takes no new request.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if let Some(running) = self.running() {
            running.driver.drain();
        }
    }
}

impl Service for App {
    fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Relaxed) {
            Readiness::Draining
        } else if self.running().is_some() {
            Readiness::Ready
        } else {
            Readiness::Loading
        }
    }

    fn submit(&self, request: Request) -> BoxFuture<'_, Result<Submission, Reject>> {
        Box::pin(async move {
            let driver = self.running().ok_or(Reject::Draining)?.driver.clone();
            let (id, events) = driver.submit(request).await?;
            Ok(Submission { id, events, cancel: CancelOnDrop::new(move || driver.cancel(id)) })
        })
    }

    fn stats(&self) -> Stats {
        self.running().map(|running| running.driver.stats()).unwrap_or_default()
    }

    fn extra_metrics(&self) -> String {
        let Some(running) = self.running() else { return String::new() };
        let recorded: Vec<_> = running.logs.iter().map(|(slot, log)| (*slot, log.totals())).collect();
        let (reports, shadows) = (running.driver.slot_reports(), self.shadow_reports());
        running.facts.clone() + &crate::policy_metrics::text(&reports, &shadows, &recorded)
    }
}
