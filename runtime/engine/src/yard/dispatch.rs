//! The decisions: where a request goes, and which waiting request takes a chain's room.
//!
//! Each question is put by [`Engine::decide`]: the policy is brought up to date and asked, [`crate::guard`] checks its
//! answer, and if anything is wrong the builtin answers the same question in the same call. Called by [`crate::step`].
//!
//! Two rules stand above any policy. A deferral is bounded, and a request at the head of the queue that has waited longer
//! than [`limits::STARVATION_MICROS`] is dispatched by the builtin as soon as it fits. Until then nothing overtakes it on a
//! chain that could hold it, so that a large request is not starved by small ones that fill every gap.

use crate::builtin;
use crate::decision::{Fault, FaultClass, RouteDecision};
use crate::engine::Engine;
use crate::guard;
use crate::ids::{ChainId, Micros, RequestId};
use crate::limits;
use crate::output::{Finish, Outbox};
use crate::port::{Overlap, Pick, Policies, Pull, RoutePolicy, Waiting};
use crate::random;
use crate::request::Request;

/// The question about `request`; its view and random bits are filled in by [`Engine::decide`].
pub(crate) fn question(id: RequestId, request: &Request, now: Micros) -> Pick {
    let raw = request.raw();
    Pick {
        id,
        seq: 0,
        now,
        rnd: 0,
        tenant: raw.tenant,
        class: raw.class,
        prompt: request.prompt_tokens(),
        reserve: request.reserve_tokens(),
        deadline: raw.deadline,
        session: raw.session,
        hints: 0,
    }
}

impl Engine {
    /// Asks the policy, checks its answer with `guard`, and lets `builtin` answer in its place after any fault.
    fn decide<A: Copy>(
        &mut self,
        policy: &mut dyn RoutePolicy,
        ask: impl FnOnce(&mut dyn RoutePolicy, u64, u64) -> Result<A, Fault>,
        guard: impl FnOnce(&Self, A) -> Result<(), Fault>,
        builtin: impl FnOnce(&Self) -> A,
        encode: impl FnOnce(A) -> u64,
    ) -> A {
        let rnd = random::bits(self.seed, self.stats.decisions_total);
        self.stats.decisions_total += 1;
        let told = self.view.sync(&mut self.chains, self.queue.len(), policy);
        let fault = match told.and_then(|seq| ask(policy, seq, rnd)) {
            Ok(answer) => match guard(self, answer) {
                Ok(()) => return answer,
                Err(fault) => {
                    policy.refused(&fault);
                    fault
                }
            },
            Err(fault) => fault,
        };
        self.stats.fallbacks_total[fault.class.index()] += 1;
        let answer = builtin(self);
        policy.replaced(encode(answer));
        answer
    }

    /// What the chains hold of a prompt, if the policy wants to know.
    pub(crate) fn overlaps(&self, policy: &dyn RoutePolicy, request: &Request) -> Vec<Overlap> {
        if !policy.wants_overlap() {
            return Vec::new();
        }
        let held = self.chains.iter().map(|chain| (chain.id, chain.line.cached_tokens(request)));
        held.filter(|(_, tokens)| *tokens > 0).map(|(chain, tokens)| Overlap { chain, tokens }).collect()
    }

    /// Where does this request go? `may_wait` says whether the queue has a place for it; if it has none and the request
    /// can not run now, the answer is `None`.
    pub(crate) fn pick(
        &mut self,
        policy: &mut dyn RoutePolicy,
        ask: Pick,
        overlap: &[Overlap],
        may_wait: bool,
    ) -> Option<RouteDecision> {
        let answer = self.decide(
            policy,
            |policy, seq, rnd| policy.pick(&Pick { seq, rnd, ..ask }, overlap),
            |engine, answer| guard::pick(&engine.chains, ask.reserve, answer),
            |engine| builtin::arrive(engine.chains.views(), engine.queue.len(), ask.reserve),
            RouteDecision::encode,
        );
        match answer {
            // Not the policy's fault: it can not know who starves.
            RouteDecision::Dispatch(chain) if self.is_held(chain) => {
                policy.replaced(RouteDecision::Queue.encode());
                may_wait.then_some(RouteDecision::Queue)
            }
            RouteDecision::Dispatch(_) | RouteDecision::Reject(_) => Some(answer),
            RouteDecision::Queue | RouteDecision::Defer(_) if may_wait => Some(answer),
            // Nor that the queue is full: what can run now need not be refused.
            RouteDecision::Queue | RouteDecision::Defer(_) => match builtin::pick(self.chains.views(), ask.reserve) {
                RouteDecision::Dispatch(chain) if !self.is_held(chain) => {
                    policy.replaced(RouteDecision::Dispatch(chain).encode());
                    Some(RouteDecision::Dispatch(chain))
                }
                _ => None,
            },
        }
    }

    /// Asks again about every deferred request whose time has come.
    pub(crate) fn ask_deferred(&mut self, policies: &mut dyn Policies, out: &mut Outbox) {
        while let Some(job) = self.queue.due(self.now) {
            let (id, ask) = (job.id, question(job.id, &job.request, self.now));
            let overlap = self.overlaps(policies.route(), &job.request);
            match self.pick(policies.route(), ask, &overlap, true) {
                Some(RouteDecision::Dispatch(chain)) => self.start_waiting(id, chain, policies),
                Some(RouteDecision::Reject(code)) => {
                    self.queue.remove(id);
                    self.end(id, Finish::Rejected(code), out);
                }
                Some(RouteDecision::Defer(after)) => {
                    let until = self.deferred_until(after);
                    self.queue.defer_again(id, self.now, until);
                }
                Some(RouteDecision::Queue) | None => self.queue.defer(id, None),
            }
        }
    }

    /// Dispatches requests at the head of the queue that have waited too long and fit.
    pub(crate) fn rescue_starving(&mut self, policies: &mut dyn Policies) {
        while let Some((id, reserve)) = self.starving() {
            let RouteDecision::Dispatch(chain) = builtin::pick(self.chains.views(), reserve) else { return };
            self.start_waiting(id, chain, policies);
            self.stats.starved_total += 1;
            // Overload makes requests wait, too. It is the policy's doing only if the request fitted all the while.
            let fitted = self.fitting.take().filter(|(fitting, _)| *fitting == id);
            if fitted.is_some_and(|(_, since)| self.now.since(since).0 > limits::STARVATION_MICROS) {
                self.stats.fallbacks_total[FaultClass::Stall.index()] += 1;
                policies.route().stalled(id);
            }
        }
    }

    /// Gives room to waiting requests, the emptiest chain first, until nothing fits or the policy wants none of it.
    pub(crate) fn pull_all(&mut self, policies: &mut dyn Policies) {
        let mut window = std::mem::take(&mut self.window);
        let mut declined = Vec::new();
        // Each turn takes a request out of the queue or a chain out of the choice.
        loop {
            self.queue.window(self.now, &mut window);
            let Some(least) = window.iter().map(|job| job.reserve).min() else { break };
            let askable = self.chains.views().filter(|chain| !declined.contains(&chain.id) && !self.is_held(chain.id));
            let RouteDecision::Dispatch(chain) = builtin::pick(askable, least) else { break };
            match self.pull(policies.route(), chain, &window) {
                Some(index) => self.start_waiting(window[index as usize].id, chain, policies),
                None => declined.push(chain),
            }
        }
        self.window = window;
    }

    /// Notes since when the request at the head of the queue could have been started, deferred or not. A policy that has not been
    /// asked yet is not to blame for what its predecessor left.
    pub(crate) fn watch_head(&mut self, policy: &dyn RoutePolicy) {
        let head = self.queue.head().map(|head| (head.id, head.request.reserve_tokens()));
        let fits = |reserve| matches!(builtin::pick(self.chains.views(), reserve), RouteDecision::Dispatch(_));
        self.fitting = match (head.filter(|(_, reserve)| fits(*reserve)), self.fitting) {
            (Some((id, _)), Some((fitting, since))) if id == fitting && !policy.wants_snapshot() => Some((id, since)),
            (Some((id, _)), _) => Some((id, self.now)),
            (None, _) => None,
        };
    }

    /// Which of the window takes the room on `chain`? At least one of them fits.
    fn pull(&mut self, policy: &mut dyn RoutePolicy, chain: ChainId, window: &[Waiting]) -> Option<u32> {
        let now = self.now;
        self.decide(
            policy,
            |policy, seq, rnd| policy.pull(&Pull { seq, now, rnd, chain }, window),
            |engine, answer| guard::pull(&engine.chains, chain, window, answer),
            |engine| engine.chains.get(chain).and_then(|chain| builtin::pull(&chain.view(), window)),
            |index| index.unwrap_or(u32::MAX).into(),
        )
    }

    /// The request at the head of the queue, if it has waited too long, and the tokens it reserves.
    fn starving(&self) -> Option<(RequestId, u32)> {
        let head = self.queue.head()?;
        let waited = self.now.since(head.arrived).0;
        (waited > limits::STARVATION_MICROS).then(|| (head.id, head.request.reserve_tokens()))
    }

    /// Whether the room on a chain is kept for a starving request.
    fn is_held(&self, chain: ChainId) -> bool {
        let Some((_, reserve)) = self.starving() else { return false };
        self.chains.get(chain).is_some_and(|chain| chain.open && reserve <= chain.line.kv().total_tokens())
    }

    pub(crate) fn deferred_until(&self, after: Micros) -> Micros {
        let after = after.0.clamp(limits::DEFER_MICROS_MIN, limits::DEFER_MICROS_MAX);
        Micros(self.now.0.saturating_add(after))
    }
}
