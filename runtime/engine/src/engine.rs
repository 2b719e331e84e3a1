//! The state of the engine, and what can be asked of it between inputs. The inputs themselves are in `step`.

use std::collections::BTreeMap;

use crate::builtin::Builtin;
use crate::config::{ConfigError, EngineConfig};
use crate::decision::FaultClass;
use crate::desk::Desk;
use crate::ids::{ChainId, Micros, RequestId};
use crate::limits;
use crate::line::Slot;
use crate::output::{Event, Finish, Outbox};
use crate::port::{Policies, StepResult, Waiting};
use crate::request::ModelLimits;
use crate::sample::Scratch;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::window::{Idle, Kind, Order};
use crate::yard::chains::{Chain, Chains};
use crate::yard::queue::{Job, Queue};
use crate::yard::view::View;

/// Where a live request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Queue,
    Chain(ChainId, Slot),
}

/// The deterministic core; see the crate's notes. One owner calls it, one input at a time.
pub struct Engine {
    pub(crate) chains: Chains,
    pub(crate) queue: Queue,
    /// Every live request, and nothing else: a request leaves it with its terminal event.
    pub(crate) places: BTreeMap<RequestId, Place>,
    pub(crate) view: View,
    pub(crate) stats: Stats,
    pub(crate) now: Micros,
    pub(crate) draining: bool,
    /// The request at the head of the queue, and since when it has fitted on a chain without being started.
    pub(crate) fitting: Option<(RequestId, Micros)>,
    pub(crate) seed: u64,
    pub(crate) model: ModelLimits,
    pub(crate) batch: Desk,
    pub(crate) cache: Desk,
    /// Requests dispatched in this turn, with the cached tokens of their prompts; not told yet.
    pub(crate) started: Vec<(RequestId, u32)>,
    /// Buffers that keep their memory.
    pub(crate) scratch: Scratch,
    pub(crate) window: Vec<Waiting>,
}

impl Engine {
    /// An idle engine with all its chains open.
    ///
    /// # Errors
    /// The first field of `config` that is out of its range.
    pub fn new(config: &EngineConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let chains = Chains::new(config);
        Ok(Self {
            view: View::new(&chains),
            queue: Queue::new(config.queue_max),
            places: BTreeMap::new(),
            stats: Stats { chains: chains.iter().map(Chain::stats).collect(), ..Stats::default() },
            now: Micros(0),
            draining: false,
            fitting: None,
            seed: config.seed,
            model: config.model,
            batch: Desk::new(Kind::Step, config.seed),
            cache: Desk::new(Kind::Victims, config.seed),
            started: Vec::new(),
            scratch: Scratch::default(),
            window: Vec::new(),
            chains,
        })
    }

    /// Takes no new request from now on; waiting and running ones finish.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Ends every request at once, each with its terminal event. Blocks of sequences that are in flight are released when
    /// their micro-batches come back. New requests are still taken, unless it also drains.
    pub fn fail_all(&mut self, reason: &str, out: &mut Outbox) {
        while let Some((&id, _)) = self.places.first_key_value() {
            self.remove(id);
            self.end(id, Finish::Failed(reason.to_owned()), out);
        }
        // Nothing is left to choose from.
        self.plan_all(&mut Builtin::default(), out);
    }

    /// Whether nothing runs, waits or is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.places.is_empty() && self.chains.iter().all(|chain| chain.line.pipeline().is_empty())
    }

    /// When [`Engine::tick`] must be called at the latest, if no other input comes before. Always later than the last
    /// input; `None` if time alone changes nothing.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Micros> {
        let starved = self.queue.head().map(|job| job.arrived.0.saturating_add(limits::STARVATION_MICROS + 1));
        let deferred = self.queue.next_due();
        deferred.into_iter().chain(starved.map(Micros)).filter(|&at| at > self.now).min()
    }

    /// The view that a policy would be given now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let chains = self.chains.views().collect();
        Snapshot { epoch: 0, seq: self.view.seq(), chains, queued: self.queue.len() }
    }

    /// Figures as of the last input.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Puts an accepted request into the queue.
    pub(crate) fn wait(&mut self, job: Job) {
        self.places.insert(job.id, Place::Queue);
        self.queue.push(job);
    }

    /// Starts an accepted request on a chain that has room for it.
    pub(crate) fn start(&mut self, job: Job, chain: ChainId, policies: &mut dyn Policies) {
        let (id, now) = (job.id, self.now);
        let snapshot = policies.cache().filter(|policy| policy.wants_snapshot()).map(|_| self.snapshot());
        if let Some(snapshot) = snapshot {
            self.cache.ready(policies.cache(), snapshot);
        }
        let desk = &mut self.cache;
        let mut evict = |window: &[Idle], need: u32, free: u32, victims: &mut Vec<u32>| {
            desk.window.clear();
            desk.window.extend(window.iter().flat_map(Idle::words));
            victims.extend(desk.ask(policies.cache(), now, chain, need, free).iter().map(|&index| index as u32));
        };
        let started = self.chains.change(chain).and_then(|chain| {
            let started = chain.line.start(job, now, &mut evict)?;
            chain.dispatched_total += 1;
            Some(started)
        });
        #[expect(clippy::expect_used, reason = "the guard or the builtin saw this room in the same call")]
        let started = started.expect("a chain that a decision may name has room");
        self.stats.prefix_queries_tokens_total += u64::from(started.asked_tokens);
        self.stats.prefix_hits_tokens_total += u64::from(started.cached_tokens);
        self.stats.prefix_evicted_blocks_total += started.evicted_blocks;
        self.places.insert(id, Place::Chain(chain, started.slot));
        self.started.push((id, started.cached_tokens));
    }

    /// Starts a waiting request on a chain that has room for it.
    pub(crate) fn start_waiting(&mut self, id: RequestId, chain: ChainId, policies: &mut dyn Policies) {
        if let Some(job) = self.queue.remove(id) {
            self.start(job, chain, policies);
        }
    }

    /// Takes a live request out of the queue or off its chain. Its terminal event is the caller's to send.
    pub(crate) fn remove(&mut self, id: RequestId) -> bool {
        match self.places.get(&id) {
            None => return false,
            Some(Place::Queue) => {
                self.queue.remove(id);
            }
            Some(&Place::Chain(chain, slot)) => {
                if let Some(chain) = self.chains.change(chain) {
                    chain.line.stop(slot);
                }
            }
        }
        true
    }

    /// Sends the terminal event of a live request, which then is not live any more.
    pub(crate) fn end(&mut self, id: RequestId, finish: Finish, out: &mut Outbox) {
        self.places.remove(&id);
        *match finish {
            Finish::Stop => &mut self.stats.stopped_total,
            Finish::Length => &mut self.stats.length_total,
            Finish::Cancelled => &mut self.stats.cancelled_total,
            Finish::Rejected(_) | Finish::Failed(_) => &mut self.stats.failed_total,
        } += 1;
        out.events.push((id, Event::Done(finish)));
    }

    /// Draws tokens from what came back, and ends what is finished.
    pub(crate) fn settle(&mut self, result: &StepResult, out: &mut Outbox) -> Option<()> {
        let events = out.events.len();
        let logits = result.logits.as_deref().map_err(String::as_str);
        let chain = self.chains.change(result.chain)?;
        let ended = chain.line.settle(result.batch, logits, self.model.vocab as usize, &mut self.scratch, out)?;
        for job in ended.iter().filter(|job| matches!(job.finish, Finish::Stop | Finish::Length)) {
            chain.note_service(self.now.since(job.started));
        }
        let drawn = out.events[events..].iter().filter(|(_, event)| matches!(event, Event::Token { .. }));
        self.stats.generated_tokens_total += drawn.count() as u64;
        for job in ended {
            self.end(job.id, job.finish, out);
        }
        Some(())
    }

    /// Tells what was dispatched, plans the next micro-batches of every chain that has changed, and brings the figures up
    /// to date.
    pub(crate) fn plan_all(&mut self, policies: &mut dyn Policies, out: &mut Outbox) {
        let started = self.started.drain(..);
        out.events.extend(started.map(|(id, cached_tokens)| (id, Event::Started { cached_tokens })));
        let snapshot = policies.batch().filter(|policy| policy.wants_snapshot()).map(|_| self.snapshot());
        if let Some(snapshot) = snapshot {
            self.batch.ready(policies.batch(), snapshot);
        }
        let (desk, now) = (&mut self.batch, self.now);
        let mut orders = Vec::new();
        while let Some(chain) = self.chains.next_unplanned() {
            let (id, line) = (chain.id, &mut chain.line);
            desk.events.extend(line.take_served().flat_map(|served| served.words()));
            while line.wants_plan() {
                desk.window.clear();
                desk.window.extend(line.window(now).flat_map(|ready| ready.words()));
                let in_flight = line.pipeline().steps().count() as u32;
                let answer = desk.ask(policies.batch(), now, id, line.token_budget(), in_flight);
                orders.clear();
                orders.extend(answer.iter().filter_map(|&word| Order::decode(word)));
                let planned = line.plan(id, &orders);
                self.stats.passed_over_total += planned.passed_over;
                if let (Some(request), Some(policy)) = (planned.held_too_long, policies.batch()) {
                    desk.stats.fallbacks_total[FaultClass::Stall.index()] += 1;
                    policy.stalled(request);
                }
                let Some(plan) = planned.plan else { break };
                out.plans.push(plan);
            }
            self.stats.chains[id.0 as usize] = chain.stats();
        }
        (self.stats.batch, self.stats.cache) = (self.batch.stats, self.cache.stats);
        self.stats.waiting = self.queue.len();
        self.stats.running = self.places.len() as u32 - self.queue.len();
    }
}
