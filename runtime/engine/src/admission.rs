//! May a request enter at all, and if so, what becomes of it? Called by [`crate::Engine::submit`].

use crate::decision::RouteDecision;
use crate::engine::Engine;
use crate::ids::RequestId;
use crate::port::Policies;
use crate::request::{Reject, Request};
use crate::yard::dispatch::question;
use crate::yard::queue::Job;

impl Engine {
    /// Admits a request and carries out the decision about it.
    pub(crate) fn enter(&mut self, id: RequestId, request: Request, policies: &mut dyn Policies) -> Result<(), Reject> {
        self.admit(id, &request)?;
        let may_wait = !self.queue.is_full();
        let overlap = self.overlaps(policies.route(), &request);
        let decision = self.pick(policies.route(), question(id, &request, self.now), &overlap, may_wait);
        let mut job = Job { id, request, arrived: self.now, not_before: None, deferrals: 0 };
        match decision.ok_or(Reject::QueueFull(self.queue.max()))? {
            RouteDecision::Dispatch(chain) => self.start(job, chain, policies),
            RouteDecision::Queue => self.wait(job),
            RouteDecision::Reject(code) => return Err(Reject::Policy(code)),
            RouteDecision::Defer(after) => {
                job.not_before = Some(self.deferred_until(after));
                self.wait(job);
            }
        }
        Ok(())
    }

    /// Refuses what no policy could place: while draining, what exceeds every chain, and what finds neither room on a
    /// chain nor a place in the queue.
    fn admit(&self, id: RequestId, request: &Request) -> Result<(), Reject> {
        if self.draining {
            return Err(Reject::Draining);
        }
        if self.places.contains_key(&id) {
            return Err(Reject::Invalid { field: "id", reason: format!("request {} is running already", id.0) });
        }
        let (needed, available) = (request.reserve_tokens(), self.chains.largest_tokens());
        if needed > available {
            return Err(Reject::TooLarge { needed, available });
        }
        if self.queue.is_full() && !self.chains.iter().any(|chain| chain.takes(needed)) {
            return Err(Reject::QueueFull(self.queue.max()));
        }
        Ok(())
    }
}
