//! The one central queue: bounded, in order of arrival. Deferred requests keep their places in it.

use std::collections::VecDeque;

use crate::ids::{Micros, RequestId};
use crate::limits;
use crate::port::Waiting;
use crate::request::Request;

/// An accepted request that runs nowhere yet.
pub(crate) struct Job {
    pub id: RequestId,
    pub request: Request,
    pub arrived: Micros,
    /// Set while the policy has put it off: then it is asked about again, and no chain may pull it before.
    pub not_before: Option<Micros>,
    /// How often it has been put off. Each time it takes longer at least, so that a full queue of deferred requests can not keep
    /// the driver busy.
    pub deferrals: u32,
}

/// Waiting jobs, oldest first.
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    max: usize,
}

impl Queue {
    pub fn new(max: u32) -> Self {
        Self { jobs: VecDeque::with_capacity(max as usize), max: max as usize }
    }

    pub fn len(&self) -> u32 {
        self.jobs.len() as u32
    }

    pub fn max(&self) -> u32 {
        self.max as u32
    }

    pub fn is_full(&self) -> bool {
        self.jobs.len() >= self.max
    }

    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    /// The job that has waited longest.
    pub fn head(&self) -> Option<&Job> {
        self.jobs.front()
    }

    /// Appends a job. Only called when the queue is not full.
    pub fn push(&mut self, job: Job) {
        debug_assert!(!self.is_full(), "the queue's bound is checked before a request is accepted");
        self.jobs.push_back(job);
    }

    pub fn remove(&mut self, id: RequestId) -> Option<Job> {
        let index = self.jobs.iter().position(|job| job.id == id)?;
        self.jobs.remove(index)
    }

    /// The oldest deferred job whose time has come.
    pub fn due(&self, now: Micros) -> Option<&Job> {
        self.jobs.iter().find(|job| job.not_before.is_some_and(|at| at <= now))
    }

    /// Puts a job off once more: until a time, but no less than twice as long as it had to be the last time, up to the longest.
    pub fn defer_again(&mut self, id: RequestId, now: Micros, until: Micros) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.deferrals = job.deferrals.saturating_add(1);
            let least = (limits::DEFER_MICROS_MIN << job.deferrals.min(20)).min(limits::DEFER_MICROS_MAX);
            job.not_before = Some(until.max(Micros(now.0.saturating_add(least))));
        }
    }

    /// Puts a job off until a time, or lets it wait for a chain.
    pub fn defer(&mut self, id: RequestId, not_before: Option<Micros>) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.not_before = not_before;
        }
    }

    /// When the next deferred job must be asked about.
    pub fn next_due(&self) -> Option<Micros> {
        self.jobs.iter().filter_map(|job| job.not_before).min()
    }

    /// The oldest jobs that are not deferred, at most [`limits::PULL_WINDOW_MAX`].
    pub fn window(&self, now: Micros, into: &mut Vec<Waiting>) {
        into.clear();
        let ready = self.jobs.iter().filter(|job| job.not_before.is_none());
        into.extend(ready.take(limits::PULL_WINDOW_MAX).map(|job| Waiting {
            id: job.id,
            tenant: job.request.raw().tenant,
            class: job.request.raw().class,
            prompt: job.request.prompt_tokens(),
            reserve: job.request.reserve_tokens(),
            waited: now.since(job.arrived),
        }));
    }
}
