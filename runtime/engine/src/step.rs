//! One turn of the engine: the inputs, and the order of the phases that follow each of them.
//!
//! Every input ends in `Engine::turn`: deferred requests are asked about again, starving ones are rescued, room is given
//! to waiting ones, and every chain with room in its pipeline gets its next micro-batch. Results go to the [`Outbox`].

use crate::engine::Engine;
use crate::ids::{ChainId, Micros, RequestId};
use crate::invariant;
use crate::output::{Finish, Outbox};
use crate::port::{Policies, StepResult};
use crate::request::{Reject, Request};

impl Engine {
    /// A new request. Accepted, it is dispatched or waits, and ends in exactly one [`Event::Done`](crate::output::Event::Done).
    ///
    /// # Errors
    /// Why it was refused; no event follows.
    pub fn submit(
        &mut self,
        now: Micros,
        id: RequestId,
        request: Request,
        policies: &mut dyn Policies,
        out: &mut Outbox,
    ) -> Result<(), Reject> {
        self.now = now.max(self.now);
        let prompt = request.prompt_tokens();
        let outcome = self.enter(id, request, policies);
        match &outcome {
            Ok(()) => {
                self.stats.accepted_total += 1;
                self.stats.prompt_tokens_total += u64::from(prompt);
            }
            Err(_) => self.stats.rejected_total += 1,
        }
        self.turn(policies, out);
        outcome
    }

    /// The caller has lost interest. The terminal event is sent at once, wherever the request is; a request that is not
    /// live is left alone.
    pub fn cancel(&mut self, now: Micros, id: RequestId, policies: &mut dyn Policies, out: &mut Outbox) {
        self.now = now.max(self.now);
        if self.remove(id) {
            self.end(id, Finish::Cancelled, out);
        }
        self.turn(policies, out);
    }

    /// A micro-batch came back. One that is not in flight is counted and ignored; one that failed on the device, or whose
    /// logits have the wrong length, fails its sequences.
    pub fn complete(&mut self, now: Micros, result: StepResult, policies: &mut dyn Policies, out: &mut Outbox) {
        self.now = now.max(self.now);
        if self.settle(&result, out).is_none() {
            self.stats.stale_results_total += 1;
        }
        self.turn(policies, out);
    }

    /// Time has passed; see [`Engine::next_deadline`].
    pub fn tick(&mut self, now: Micros, policies: &mut dyn Policies, out: &mut Outbox) {
        self.now = now.max(self.now);
        self.turn(policies, out);
    }

    /// Opens a chain to new jobs or closes it to drain. False if there is no such chain.
    pub fn set_open(
        &mut self,
        now: Micros,
        chain: ChainId,
        open: bool,
        policies: &mut dyn Policies,
        out: &mut Outbox,
    ) -> bool {
        self.now = now.max(self.now);
        let known = self.chains.change(chain).map(|chain| chain.open = open).is_some();
        self.turn(policies, out);
        known
    }

    /// The phases that follow every input.
    fn turn(&mut self, policies: &mut dyn Policies, out: &mut Outbox) {
        self.ask_deferred(policies, out);
        self.rescue_starving(policies);
        self.pull_all(policies);
        self.watch_head(policies.route());
        self.plan_all(policies, out);
        invariant::assert_cheap(self);
    }
}
