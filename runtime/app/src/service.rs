//! What the HTTP layer sees of the rest: [`App`] runs requests through the driver and swaps policies.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pointsman_api::service::{
    BoxFuture, CancelOnDrop, PolicyAdmin, PolicyInfo, PolicyListing, PolicySource, Readiness, Service, SlotState,
    Submission, SwapError,
};
use pointsman_engine::decision::FaultClass;
use pointsman_engine::request::{Reject, Request};
use pointsman_engine::stats::Stats;
use pointsman_policy::{Candidate, Descriptor, Digest, PolicyCard, PolicyHost, Retired, RouteSlot, SlotReport};
use tokio::sync::Semaphore;

use crate::config::SLOTS;
use crate::driver::DriverHandle;
use crate::policies::Registry;

/// The running application. Answers before the model is loaded, too.
pub struct App {
    host: PolicyHost,
    registry: Registry,
    driver: OnceLock<DriverHandle>,
    draining: AtomicBool,
    /// Preparing a policy costs a core for some milliseconds: one at a time, so that streams keep the rest.
    preparing: Semaphore,
    facts: OnceLock<String>,
}

impl App {
    /// An application without a model yet.
    pub fn new(host: PolicyHost) -> Self {
        Self {
            host,
            registry: Registry::default(),
            driver: OnceLock::new(),
            draining: AtomicBool::new(false),
            preparing: Semaphore::new(1),
            facts: OnceLock::new(),
        }
    }

    /// The model is loaded and the engine runs: requests are taken from now on. `facts` are lines for `/metrics`.
    pub fn start(&self, driver: DriverHandle, facts: String) {
        // The facts first: whoever sees the driver may read them.
        let _ = self.facts.set(facts);
        let _ = self.driver.set(driver);
    }

    /// Whether requests run or wait.
    pub fn has_work(&self) -> bool {
        let stats = self.stats();
        stats.running + stats.waiting > 0
    }

    /// Ends every request with a failure.
    pub fn abort(&self, why: &str) {
        if let Some(driver) = self.driver.get() {
            driver.abort(why);
        }
    }

    /// Takes no new request.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.get() {
            driver.drain();
        }
    }

    /// Verifies, compiles and tries a policy. Takes milliseconds: not for an async thread.
    ///
    /// # Errors
    /// The policy is unknown or refused.
    pub fn prepare(&self, source: PolicySource, config: &str) -> Result<Candidate, SwapError> {
        let (bytes, artifact) = self.registry.find(source)?;
        let candidate =
            self.host.prepare(&artifact, config).map_err(|refused| SwapError::Refused(refused.to_string()))?;
        self.registry.remember(info(candidate.descriptor(), candidate.digest()), bytes);
        Ok(candidate)
    }

    fn driver(&self) -> Result<&DriverHandle, SwapError> {
        self.driver.get().ok_or_else(|| SwapError::Unavailable("the model is still being loaded".into()))
    }

    async fn change(
        &self,
        slot: &str,
        expected: Option<u64>,
        change: impl FnOnce(&mut RouteSlot) -> Result<Retired, SwapError> + Send + 'static,
    ) -> Result<SlotState, SwapError> {
        known_slot(slot)?;
        let change = move |slot: &mut RouteSlot| {
            let now = slot.report().generation;
            if expected.is_some_and(|expected| expected != now) {
                return Err(SwapError::Conflict(now));
            }
            let retired = change(slot)?;
            Ok((state(slot.report()), retired))
        };
        let ended = || SwapError::Unavailable("the server is shutting down".into());
        // What has left the slot is dropped here, not on the engine's thread.
        let (state, _retired) = self.driver()?.change_slot(change).await.ok_or_else(ended)??;
        Ok(state)
    }
}

fn known_slot(slot: &str) -> Result<(), SwapError> {
    if SLOTS.contains(&slot) {
        return Ok(());
    }
    Err(SwapError::NotFound(format!("there is no slot `{slot}`; slots: {}", SLOTS.join(", "))))
}

fn card(card: &PolicyCard) -> PolicyInfo {
    info(&card.descriptor, card.digest)
}

/// A policy as the HTTP layer names it.
pub fn info(descriptor: &Descriptor, digest: Digest) -> PolicyInfo {
    PolicyInfo { name: descriptor.name.to_string(), version: descriptor.version.clone(), digest: digest.to_string() }
}

fn state(report: SlotReport) -> SlotState {
    let faults = FaultClass::ALL.iter().zip(report.faults).filter(|(_, count)| *count > 0);
    SlotState {
        slot: SLOTS[0].to_owned(),
        generation: report.generation,
        active: report.active.as_ref().map(card),
        previous: report.previous.as_ref().map(card),
        status: report.status.name().to_owned(),
        faults: faults.map(|(class, count)| (class.name().to_owned(), count)).collect(),
        last_fault: report.last_fault.map(|fault| fault.to_string()),
    }
}

impl Service for App {
    fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Relaxed) {
            Readiness::Draining
        } else if self.driver.get().is_some() {
            Readiness::Ready
        } else {
            Readiness::Loading
        }
    }

    fn submit(&self, request: Request) -> BoxFuture<'_, Result<Submission, Reject>> {
        Box::pin(async move {
            let driver = self.driver.get().ok_or(Reject::Draining)?.clone();
            let (id, events) = driver.submit(request).await?;
            Ok(Submission { id, events, cancel: CancelOnDrop::new(move || driver.cancel(id)) })
        })
    }

    fn stats(&self) -> Stats {
        self.driver.get().map(DriverHandle::stats).unwrap_or_default()
    }

    fn extra_metrics(&self) -> String {
        self.facts.get().cloned().unwrap_or_default()
    }
}

impl PolicyAdmin for App {
    fn list(&self) -> PolicyListing {
        let slots = self.driver.get().map(|driver| state(driver.slot_report()));
        PolicyListing { slots: slots.into_iter().collect(), available: self.registry.available() }
    }

    fn swap(
        &self,
        slot: String,
        source: PolicySource,
        config: String,
        expected: Option<u64>,
    ) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        Box::pin(async move {
            known_slot(&slot)?;
            self.driver()?;
            let turn = self.preparing.acquire().await;
            let candidate = tokio::task::block_in_place(|| self.prepare(source, &config))?;
            drop(turn);
            self.change(&slot, expected, move |slot| Ok(slot.swap_in(candidate))).await
        })
    }

    fn rollback(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let change = |slot: &mut RouteSlot| slot.rollback().map_err(|nothing| SwapError::NotFound(nothing.to_string()));
        Box::pin(async move { self.change(&slot, expected, change).await })
    }

    fn eject(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        Box::pin(async move { self.change(&slot, expected, |slot| Ok(slot.eject())).await })
    }
}
