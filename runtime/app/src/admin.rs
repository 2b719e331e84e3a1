//! What [`App`] does for operators: policies in and out, trials, shadows, and the decision log.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pointsman_api::service::{
    AuditEntry, Available, BoxFuture, CandidateInfo, DecisionInfo, Mode, PolicyAdmin, PolicyInfo, PolicyListing,
    PolicySource, Quarantined, ShadowState, SlotState, Swap, SwapError, SwapOptions, TrialState, WatchState,
};
use pointsman_engine::decision::{FaultClass, RouteDecision};
use pointsman_policy::replay::explain::{Explanation, explain};
use pointsman_policy::replay::rival::RivalReport;
use pointsman_policy::slo::Slo;
use pointsman_policy::trust::SIGNATURE_BYTES_MAX;
use pointsman_policy::{
    Artifact, Candidate, DecisionLog, Descriptor, Digest, Guard, NotNow, Notice, PolicyCard, PolicySlot, Retired,
    Shadow, SlotKind, SlotReport, Stage,
};

use crate::config::live_slot;
use crate::policies::Registry;
use crate::service::{App, Running};

impl App {
    /// Verifies, compiles and tries a policy. Takes milliseconds: not for an async thread.
    ///
    /// # Errors
    /// The policy is unknown or refused.
    pub fn prepare(
        &self,
        slot: SlotKind,
        source: PolicySource,
        config: &str,
        signature: Option<String>,
    ) -> Result<Candidate, SwapError> {
        let (bytes, artifact) = self.registry.find(source)?;
        let digest = artifact.digest();
        let signature = signature.or_else(|| self.registry.signature(digest));
        if signature.as_ref().is_some_and(|text| text.len() > SIGNATURE_BYTES_MAX) {
            let why = format!("its signature has more than {SIGNATURE_BYTES_MAX} bytes");
            return Err(SwapError::Refused(format!("refused at {}: {why}", Stage::Trust)));
        }
        if !Registry::is_shipped(digest) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let signer = self.trust.check(slot.name(), digest, signature.as_deref(), now);
            let signer = signer.map_err(|why| SwapError::Refused(format!("refused at {}: {why}", Stage::Trust)))?;
            if let Some(signer) = signer {
                tracing::info!(%digest, %signer, "the policy's signature is good");
            }
        }
        let candidate =
            self.host.prepare(slot, &artifact, config).map_err(|refused| SwapError::Refused(refused.to_string()))?;
        let slots = artifact.slots().iter().map(ToString::to_string).collect();
        let policy = info(candidate.descriptor(), candidate.digest());
        self.registry.remember(Available { policy, slots }, bytes, signature);
        Ok(candidate)
    }

    /// Writes down what the slot has done by itself.
    pub fn note(&self, notice: Notice) {
        let Notice { slot, digest, name, promoted, other, reason, strikes, retired } = notice;
        drop(retired);
        let (digest, other) = (Some(digest.to_string()), other.map(|other| other.to_string()));
        if promoted {
            tracing::info!(%slot, policy = name, reason, "the policy on trial was promoted");
            self.audit.note(Some(slot), "guard", "promote", other, digest, &reason);
        } else {
            tracing::warn!(%slot, policy = name, reason, strikes, "the policy was taken out");
            self.audit.note(
                Some(slot),
                "guard",
                "roll back",
                digest,
                other,
                &format!("{name}: {reason}; removal {strikes}"),
            );
        }
    }

    /// How the shadows compare.
    pub fn shadow_reports(&self) -> Vec<(SlotKind, RivalReport)> {
        self.shadows().iter().map(|(slot, shadow)| (*slot, shadow.report())).collect()
    }

    fn shadows(&self) -> MutexGuard<'_, BTreeMap<SlotKind, Shadow>> {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> Result<&Running, SwapError> {
        self.running().ok_or_else(|| SwapError::Unavailable("the model is still being loaded".into()))
    }

    /// Changes the slot between two decisions, if it is still at the generation that was expected.
    async fn change(
        &self,
        slot: SlotKind,
        expected: Option<u64>,
        action: &'static str,
        note: String,
        change: impl FnOnce(&mut PolicySlot) -> Result<Retired, SwapError> + Send + 'static,
    ) -> Result<SlotState, SwapError> {
        let audit = Arc::clone(&self.audit);
        let change = move |state: &mut PolicySlot| {
            let now = state.generation();
            if expected.is_some_and(|expected| expected != now) {
                return Err(SwapError::Conflict(now));
            }
            let before = state.report();
            let retired = change(state)?;
            let after = state.report();
            let digest = |report: &SlotReport| report.active.as_ref().map(|card| card.digest.to_string());
            // Here, so that no change goes unwritten when its asker has gone away.
            audit.note(Some(slot), "operator", action, digest(&before), digest(&after), &note);
            Ok((after, retired))
        };
        let ended = || SwapError::Unavailable("the server is shutting down".into());
        // What has left the slot is dropped here, not on the engine's thread.
        let (after, _retired) = self.ready()?.driver.change_slot(slot, change).await.ok_or_else(ended)??;
        Ok(self.state(after))
    }

    /// The log of a slot, in which all is that has been decided by now.
    async fn flushed<'a>(&self, running: &'a Running, slot: SlotKind) -> Result<&'a DecisionLog, SwapError> {
        let ended = || SwapError::Unavailable("the server is shutting down".into());
        running.driver.change_slot(slot, PolicySlot::flush).await.ok_or_else(ended)?;
        let log = running.logs.get(&slot).ok_or_else(ended)?;
        tokio::task::block_in_place(|| log.sync());
        Ok(log)
    }

    async fn swap_in(&self, slot: String, swap: Swap, expected: Option<u64>) -> Result<SlotState, SwapError> {
        let slot = known_slot(&slot)?;
        let running = self.ready()?;
        let Swap { source, config, signature, options } = swap;
        if slot != SlotKind::Route && matches!(options.mode, Mode::Trial(_)) {
            return Err(SwapError::Refused(NotNow::NoShares.to_string()));
        }
        let turn = self.preparing.acquire().await;
        let candidate = tokio::task::block_in_place(|| self.prepare(slot, source, &config, signature))?;
        if options.rehearse {
            let log = self.flushed(running, slot).await?;
            let rehearsed = tokio::task::block_in_place(|| self.host.rehearse(&candidate, &log.newest()));
            rehearsed.map_err(|refused| SwapError::Refused(refused.to_string()))?;
        }
        let (guard, digest) = (guard(options), candidate.digest());
        let note = |what: &str| format!("{what}: {digest}");
        match options.mode {
            Mode::Active => {
                let change = move |slot: &mut PolicySlot| Ok(slot.swap_in(candidate, guard));
                self.change(slot, expected, "swap", String::new(), change).await
            }
            Mode::Trial(share) => {
                let change = move |slot: &mut PolicySlot| {
                    slot.challenge(candidate, share, guard).map_err(|none| SwapError::Refused(none.to_string()))
                };
                self.change(slot, expected, "trial", note("on trial"), change).await
            }
            Mode::Shadow => {
                // The turn is kept, so that of two shadows the later one stays.
                let check = |_: &mut PolicySlot| Ok(Retired::default());
                self.change(slot, expected, "shadow", note("shadow"), check).await?;
                let log = self.flushed(running, slot).await?;
                let shadow = Shadow::start(log, candidate)
                    .map_err(|error| SwapError::Unavailable(format!("the shadow can not be started: {error}")))?;
                self.shadows().insert(slot, shadow);
                let ended = || SwapError::Unavailable("the server is shutting down".into());
                let begin = |slot: &mut PolicySlot| {
                    slot.start_afresh();
                    slot.report()
                };
                let report = running.driver.change_slot(slot, begin).await.ok_or_else(ended)?;
                drop(turn);
                Ok(self.state(report))
            }
        }
    }

    async fn explained(&self, request: u64) -> Result<DecisionInfo, SwapError> {
        let log = self.flushed(self.ready()?, SlotKind::Route).await?;
        let unknown =
            || SwapError::NotFound(format!("the decision about request {request} is not in the log, or not any more"));
        let _turn = self.preparing.acquire().await;
        let words = tokio::task::block_in_place(|| log.find(request)).ok_or_else(unknown)?;
        let find = |digest: Digest| self.artifact(digest);
        let explained = tokio::task::block_in_place(|| explain(&self.host, &find, &words));
        let explained = explained.map_err(|error| SwapError::NotFound(error.to_string()))?.ok_or_else(unknown)?;
        Ok(decision_info(explained))
    }

    fn artifact(&self, digest: Digest) -> Option<Artifact> {
        self.registry.find(PolicySource::Name(digest.to_string())).ok().map(|(_, artifact)| artifact)
    }

    fn state(&self, report: SlotReport) -> SlotState {
        let shadows = self.shadows();
        let shadow = shadows
            .get(&report.kind)
            .map(|shadow| shadow_state(info(&shadow.descriptor, shadow.digest), &shadow.report()));
        SlotState {
            slot: report.kind.to_string(),
            generation: report.generation,
            active: report.active.as_ref().map(card),
            previous: report.previous.as_ref().map(card),
            faults: faults(&report.faults),
            last_fault: report.last_fault.map(|fault| fault.to_string()),
            trial: report.challenger.map(|trial| TrialState {
                policy: card(&trial.policy),
                percent: f64::from(trial.share) / 100.0,
                faults: faults(&trial.faults),
                requests: trial.requests,
                ttft_ratio: trial.ttft_ratio,
                tpot_ratio: trial.tpot_ratio,
            }),
            shadow,
            watch: report.watch.map(|(requests, ttft_ratio, tpot_ratio)| WatchState {
                requests,
                ttft_ratio,
                tpot_ratio,
            }),
        }
    }
}

fn known_slot(slot: &str) -> Result<SlotKind, SwapError> {
    live_slot(slot).map_err(SwapError::NotFound)
}

fn guard(options: SwapOptions) -> Guard {
    let slo = Slo { margin: options.slo_margin, requests: options.slo_requests };
    let watch = (options.mode == Mode::Active && options.guard_faults).then_some(options.slo_margin);
    Guard { faults: options.guard_faults, slo, promote: options.promote, watch }
}

fn card(card: &PolicyCard) -> PolicyInfo {
    info(&card.descriptor, card.digest)
}

/// A policy as the HTTP layer names it.
pub fn info(descriptor: &Descriptor, digest: Digest) -> PolicyInfo {
    PolicyInfo { name: descriptor.name.to_string(), version: descriptor.version.clone(), digest: digest.to_string() }
}

fn faults(counts: &[u64; FaultClass::ALL.len()]) -> Vec<(String, u64)> {
    let some = FaultClass::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
    some.map(|(class, count)| (class.name().to_owned(), *count)).collect()
}

fn shadow_state(policy: PolicyInfo, report: &RivalReport) -> ShadowState {
    ShadowState {
        policy,
        decisions: report.decisions,
        agreed: report.agreed,
        invalid: report.invalid,
        faults: faults(&report.faults),
        missed: report.missed,
        fuel: (report.fuel_total.checked_div(report.decisions).unwrap_or(0), report.fuel_max),
        service_micros: report.service_micros as f64 / (report.service_decisions.max(1) as f64),
        last_fault: report.last_fault.as_ref().map(ToString::to_string),
    }
}

/// A decision in words.
pub fn decision_text(decision: RouteDecision) -> String {
    match decision {
        RouteDecision::Dispatch(chain) => format!("chain {}", chain.0),
        RouteDecision::Queue => "queue".to_owned(),
        RouteDecision::Reject(code) => format!("reject {code}"),
        RouteDecision::Defer(after) => format!("defer {} us", after.0),
    }
}

fn decision_info(explained: Explanation) -> DecisionInfo {
    let decision = explained.decision().map_or_else(|| "none".to_owned(), decision_text);
    let fault = explained.outcome.fault.or(explained.refused);
    let candidates = explained.chains.iter().map(|considered| CandidateInfo {
        chain: considered.chain.id.0,
        busy: considered.chain.busy,
        capacity: considered.chain.capacity,
        free_tokens: considered.chain.free_tokens,
        service_micros: considered.chain.service.0,
        cached_tokens: considered.cached_tokens,
        fits: considered.fits,
        // A score that is no number can not be told in JSON.
        score: considered.score.filter(|score| score.is_finite()),
    });
    DecisionInfo {
        request: explained.ask.id.0,
        seq: explained.ask.seq,
        now_micros: explained.ask.now.0,
        prompt_tokens: explained.ask.prompt,
        reserve_tokens: explained.ask.reserve,
        generation: explained.generation,
        policy: explained.policy.0,
        digest: explained.policy.1.map(|digest| digest.to_string()),
        on_trial: explained.on_trial,
        decision,
        fault: fault.map(|class| class.name().to_owned()),
        fuel: explained.outcome.fuel,
        candidates: candidates.collect(),
        no_scores: explained.no_scores,
    }
}

impl PolicyAdmin for App {
    fn list(&self) -> PolicyListing {
        let reports = self.running().map_or_else(Vec::new, |running| running.driver.slot_reports());
        let slots = reports.into_iter().map(|report| self.state(report));
        let quarantined = self.host.quarantine().list().into_iter().map(|(digest, offence)| Quarantined {
            digest: digest.to_string(),
            strikes: offence.strikes,
            seconds: offence.until.map(|until| until.saturating_duration_since(std::time::Instant::now()).as_secs()),
            reason: offence.reason,
        });
        PolicyListing {
            slots: slots.collect(),
            available: self.registry.available(),
            quarantined: quarantined.collect(),
            contracts: pointsman_policy::CONTRACTS.iter().map(|version| (*version).to_owned()).collect(),
        }
    }

    fn swap(&self, slot: String, swap: Swap, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        Box::pin(self.swap_in(slot, swap, expected))
    }

    fn promote(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let change = |slot: &mut PolicySlot| slot.promote().map_err(|none| SwapError::NotFound(none.to_string()));
        Box::pin(async move { self.change(known_slot(&slot)?, expected, "promote", String::new(), change).await })
    }

    fn rollback(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let change = |slot: &mut PolicySlot| slot.rollback().map_err(|none| SwapError::NotFound(none.to_string()));
        Box::pin(async move { self.change(known_slot(&slot)?, expected, "roll back", String::new(), change).await })
    }

    fn eject(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        Box::pin(async move {
            self.change(known_slot(&slot)?, expected, "eject", String::new(), |slot| Ok(slot.eject())).await
        })
    }

    fn end_shadow(&self, slot: String) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        Box::pin(async move {
            let slot = known_slot(&slot)?;
            let shadow = self.shadows().remove(&slot);
            let shadow = shadow.ok_or_else(|| SwapError::NotFound("no policy shadows this slot".into()))?;
            let reports = self.ready()?.driver.slot_reports();
            let report = reports.into_iter().find(|report| report.kind == slot);
            let report = report.ok_or_else(|| SwapError::NotFound(format!("nobody asks the slot `{slot}`")))?;
            let active = report.active.as_ref().map(|card| card.digest.to_string());
            self.audit.note(
                Some(slot),
                "operator",
                "end shadow",
                active.clone(),
                active,
                &format!("shadow: {}", shadow.digest),
            );
            Ok(self.state(report))
        })
    }

    fn clear(&self, digest: &str) -> Result<(), SwapError> {
        let known = self.host.quarantine().list().into_iter().find(|(known, _)| known.to_string() == digest);
        let (known, _) = known.ok_or_else(|| SwapError::NotFound(format!("`{digest}` has no record to clear")))?;
        self.host.quarantine().clear(known);
        self.audit.note(None, "operator", "clear", Some(digest.to_owned()), None, "its record is forgotten");
        Ok(())
    }

    fn explain(&self, request: u64) -> BoxFuture<'_, Result<DecisionInfo, SwapError>> {
        Box::pin(self.explained(request))
    }

    fn log(&self, slot: String) -> BoxFuture<'_, Result<Vec<u8>, SwapError>> {
        Box::pin(async move {
            let log = self.flushed(self.ready()?, known_slot(&slot)?).await?;
            Ok(tokio::task::block_in_place(|| log.export().0))
        })
    }

    fn dump(&self, slot: String) -> BoxFuture<'_, Result<String, SwapError>> {
        Box::pin(async move {
            let dumped = self.ready()?.driver.change_slot(known_slot(&slot)?, PolicySlot::dump).await;
            match dumped.flatten() {
                Some(Ok(text)) => Ok(text),
                Some(Err(fault)) => Err(SwapError::Unavailable(fault.to_string())),
                None => Err(SwapError::NotFound("no policy is at work in this slot".into())),
            }
        })
    }

    fn audit(&self) -> Vec<AuditEntry> {
        self.audit.entries()
    }
}

/// Carries notices from the engine's thread to the audit log, until the engine has ended. Does not keep the application alive: the
/// engine ends when nobody can talk to it any more.
pub fn follow(app: &Arc<App>, notices: crossbeam_channel::Receiver<Notice>) -> std::io::Result<()> {
    let app = Arc::downgrade(app);
    let follow = move || {
        for notice in notices {
            if let Some(app) = app.upgrade() {
                app.note(notice);
            }
        }
    };
    std::thread::Builder::new().name("notices".into()).spawn(follow).map(drop)
}
