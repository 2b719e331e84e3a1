//! The engine's thread: feeds the state machine with commands and step results, and carries out what it asks for.
//!
//! One [`Driver`] owns the engine, the slots and the chains, so that no decision is ever made under a lock. Others
//! hold a [`DriverHandle`] and send commands over a bounded channel. A swap of a policy is just another command, and so
//! falls between two decisions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use pointsman_engine::Engine;
use pointsman_engine::ids::{Micros, RequestId};
use pointsman_engine::output::{Event, Finish, Outbox};
use pointsman_engine::port::{StepPlan, StepResult};
use pointsman_engine::request::{Reject, Request};
use pointsman_engine::stats::Stats;
use pointsman_policy::slo::Sample;
use pointsman_policy::{Notice, PolicySlot, SlotKind, SlotReport, Slots};
use pointsman_stage::Chain;
use pointsman_tensor::cpu::Cpu;
use tokio::sync::{mpsc, oneshot};

/// What has been decided is in the log, and known to a shadow, after this long.
const FLUSH_AFTER: Micros = Micros(200_000);
/// Commands that may wait for the driver; more are refused as overload.
const COMMANDS_MAX: usize = 1024;

/// A change of a slot, made on the driver's thread between two decisions, and its answer, sent when the new state has been
/// published.
type SlotChange = Box<dyn FnOnce(&mut Slots) -> Reply + Send>;
type Reply = Box<dyn FnOnce() + Send>;

enum Command {
    Submit {
        id: RequestId,
        request: Box<Request>,
        events: mpsc::Sender<Event>,
        reply: oneshot::Sender<Result<(), Reject>>,
    },
    Cancel(RequestId),
    Slot(SlotChange),
    Drain,
    Abort(String),
}

/// Talks to a running [`Driver`]; clones talk to the same one.
#[derive(Clone)]
pub struct DriverHandle {
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

struct Shared {
    next_id: AtomicU64,
    published: Mutex<(Stats, Vec<SlotReport>)>,
}

/// The engine's thread; see the module's notes.
pub struct Driver {
    engine: Engine,
    slots: Slots,
    chains: Vec<Chain<Cpu>>,
    commands: Receiver<Command>,
    results: Receiver<StepResult>,
    readers: HashMap<RequestId, Reader>,
    /// Told what a slot does by itself.
    notices: Sender<Notice>,
    replies: Vec<Reply>,
    flushed: Micros,
    shared: Arc<Shared>,
    clock: Instant,
}

/// Who waits for a request's events, and how fast they came.
struct Reader {
    events: mpsc::Sender<Event>,
    arrived: Micros,
    first: Micros,
    tokens: u64,
}

impl Reader {
    /// Notes one event; the times of a request that has ended well.
    fn note(&mut self, event: &Event, now: Micros) -> Option<Sample> {
        match event {
            Event::Token { .. } => {
                self.tokens += 1;
                if self.tokens == 1 {
                    self.first = now;
                }
                None
            }
            Event::Done(Finish::Stop | Finish::Length) if self.tokens > 0 => Some(Sample {
                ttft_micros: self.first.since(self.arrived).0,
                tpot_micros: now.since(self.first).0.checked_div(self.tokens - 1),
            }),
            _ => None,
        }
    }
}

impl Driver {
    /// Starts the thread. `chains` are in the order of their ids; `results` is where they report to; `notices` is told what the
    /// slots do by themselves. The thread ends when the last handle is gone.
    ///
    /// # Errors
    /// The thread can not be started.
    pub fn spawn(
        engine: Engine,
        mut slots: Slots,
        chains: Vec<Chain<Cpu>>,
        results: Receiver<StepResult>,
        notices: Sender<Notice>,
    ) -> std::io::Result<(DriverHandle, JoinHandle<()>)> {
        let (sender, commands) = bounded(COMMANDS_MAX);
        let reports = slots.iter_mut().map(|slot| slot.report()).collect();
        let published = Mutex::new((engine.stats().clone(), reports));
        let shared = Arc::new(Shared { next_id: AtomicU64::new(0), published });
        let handle = DriverHandle { commands: sender, shared: Arc::clone(&shared) };
        let clock = Instant::now();
        let (readers, replies, flushed) = (HashMap::new(), Vec::new(), Micros(0));
        let driver =
            Self { engine, slots, chains, commands, results, readers, notices, replies, flushed, shared, clock };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || driver.run())?;
        Ok((handle, thread))
    }

    fn run(mut self) {
        let mut out = Outbox::default();
        loop {
            let now = self.now();
            let deadline = self.engine.next_deadline().map_or(500_000, |at| at.since(now).0.min(500_000));
            select! {
                recv(self.results) -> result => match result {
                    Ok(result) => self.engine.complete(self.now(), result, &mut self.slots, &mut out),
                    Err(_) => break,
                },
                recv(self.commands) -> command => match command {
                    Ok(command) => self.obey(command, &mut out),
                    Err(_) => break,
                },
                default(Duration::from_micros(deadline)) => self.engine.tick(self.now(), &mut self.slots, &mut out),
            }
            self.carry_out(&mut out);
            self.publish();
        }
        self.engine.fail_all("the server is shutting down", &mut out);
        self.carry_out(&mut out);
        self.publish();
    }

    fn now(&self) -> Micros {
        Micros(u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn obey(&mut self, command: Command, out: &mut Outbox) {
        let now = self.now();
        match command {
            Command::Submit { id, request, events, reply } => {
                self.readers.insert(id, Reader { events, arrived: now, first: now, tokens: 0 });
                let outcome = self.engine.submit(now, id, *request, &mut self.slots, out);
                if outcome.is_err() {
                    self.readers.remove(&id);
                }
                if reply.send(outcome).is_err() {
                    self.engine.cancel(now, id, &mut self.slots, out);
                }
            }
            Command::Cancel(id) => self.engine.cancel(now, id, &mut self.slots, out),
            Command::Slot(change) => self.replies.push(change(&mut self.slots)),
            Command::Drain => self.engine.drain(),
            Command::Abort(why) => self.engine.fail_all(&why, out),
        }
    }

    /// Hands plans to their chains and events to their readers, until nothing new comes of it.
    fn carry_out(&mut self, out: &mut Outbox) {
        while !out.plans.is_empty() || !out.events.is_empty() {
            let Outbox { plans, events } = std::mem::take(out);
            for plan in plans {
                self.launch(plan, out);
            }
            for (id, event) in events {
                self.deliver(id, event, out);
            }
        }
    }

    fn launch(&mut self, plan: StepPlan, out: &mut Outbox) {
        let (chain, batch) = (plan.chain, plan.batch);
        let Err(down) = self.chains[chain.0 as usize].launch(plan) else { return };
        tracing::error!(chain = chain.0, %down, "a step could not be started");
        let result = StepResult { chain, batch, logits: Err(down.to_string()) };
        self.engine.complete(self.now(), result, &mut self.slots, out);
    }

    /// A reader's channel has room for all events of its request, so a failed send means that the reader is gone.
    fn deliver(&mut self, id: RequestId, event: Event, out: &mut Outbox) {
        let last = matches!(event, Event::Done(_));
        let now = self.now();
        let Some(reader) = self.readers.get_mut(&id) else { return };
        if let Some(sample) = reader.note(&event, now) {
            self.slots.observe(id, sample);
        }
        let gone = reader.events.try_send(event).is_err();
        if last {
            self.readers.remove(&id);
        } else if gone {
            self.engine.cancel(self.now(), id, &mut self.slots, out);
        }
    }

    fn publish(&mut self) {
        let now = self.now();
        let flushes = now.since(self.flushed) > FLUSH_AFTER;
        if flushes {
            self.flushed = now;
        }
        for slot in self.slots.iter_mut() {
            if flushes {
                slot.flush();
            }
            for notice in slot.take_notices() {
                if self.notices.try_send(notice).is_err() {
                    tracing::warn!("what a slot did by itself could not be written down");
                }
            }
        }
        let mut published = self.shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.0.clone_from(self.engine.stats());
        for (report, slot) in published.1.iter_mut().zip(self.slots.iter_mut()) {
            if report.is_outdated(slot) {
                *report = slot.report();
            }
        }
        drop(published);
        self.replies.drain(..).for_each(|reply| reply());
    }
}

impl DriverHandle {
    /// Hands a request over and waits for the engine's answer. The receiver gets its events.
    ///
    /// # Errors
    /// The engine's refusal; [`Reject::QueueFull`] when the driver is overloaded; [`Reject::Draining`] when it has ended.
    pub async fn submit(&self, request: Request) -> Result<(RequestId, mpsc::Receiver<Event>), Reject> {
        let id = RequestId(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        // Tokens, the start, log-probs of the prompt, and the end.
        let (events, receiver) = mpsc::channel(request.max_new_tokens() as usize + 3);
        let (reply, answer) = oneshot::channel();
        let command = Command::Submit { id, request: Box::new(request), events, reply };
        match self.commands.try_send(command) {
            Ok(()) => {}
            Err(crossbeam_channel::TrySendError::Full(_)) => return Err(Reject::QueueFull(COMMANDS_MAX as u32)),
            Err(crossbeam_channel::TrySendError::Disconnected(_)) => return Err(Reject::Draining),
        }
        answer.await.unwrap_or(Err(Reject::Draining))?;
        Ok((id, receiver))
    }

    /// Cancels a request; one that has ended is left alone.
    pub fn cancel(&self, id: RequestId) {
        self.send(Command::Cancel(id));
    }

    /// Changes a slot between two decisions and waits for the outcome; `None` when the driver has ended, or nobody asks this slot.
    pub async fn change_slot<T: Send + 'static>(
        &self,
        slot: SlotKind,
        change: impl FnOnce(&mut PolicySlot) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Slot(Box::new(move |slots| {
            let outcome = slots.get(slot).map(change);
            // The asker may have gone away; the change stands.
            Box::new(move || drop(reply.send(outcome)))
        })));
        answer.await.ok()?
    }

    /// Takes no new request; running and waiting ones finish.
    pub fn drain(&self) {
        self.send(Command::Drain);
    }

    /// Ends every request with a failure.
    pub fn abort(&self, why: &str) {
        self.send(Command::Abort(why.to_owned()));
    }

    /// The engine's figures after its last turn.
    pub fn stats(&self) -> Stats {
        self.shared.published.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The slots after the engine's last turn.
    pub fn slot_reports(&self) -> Vec<SlotReport> {
        self.shared.published.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Waits for room if it must: the driver never waits for a sender, so this ends soon.
    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::debug!("a command came after the engine's end");
        }
    }
}
