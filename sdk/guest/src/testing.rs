//! Drives a policy natively, exactly as the host drives its component: a snapshot, events and questions, all in words.
//!
//! For unit tests of policies and for tools that compare a policy's native and component builds. Nothing here is part of
//! a built component.

use std::cell::RefCell;

use crate::batch::{BatchPolicy, Ready, Served, Step};
use crate::cache::{CachePolicy, Evict, Idle};
use crate::cluster::{Chain, ChainId, Cluster};
use crate::driver::{Driver, NONE};
use crate::event::{Event, low_half};
use crate::log::Level;
use crate::place::{Fleet, Model, Outcome, PlacePolicy, Workload};
use crate::policy::{InitError, Policy, Saved};
use crate::route::{Candidate, Decision, Overlap, Pull, Request, RoutePolicy, Waiting};

/// A policy under test.
///
/// ```
/// # use pointsman_sdk::{Cluster, Decision, InitError, Policy, Request, RoutePolicy};
/// # struct Always;
/// # impl Policy for Always {
/// #     const NAME: &str = "always";
/// #     const VERSION: &str = "0";
/// #     fn init(_: &str, _: &Cluster) -> Result<Self, InitError> { Ok(Self) }
/// # }
/// # impl RoutePolicy for Always {
/// #     fn pick(&mut self, _: &Request, _: &Cluster) -> Decision { Decision::Queue }
/// # }
/// use pointsman_sdk::testing::{Harness, cluster, request};
///
/// let mut policy = Harness::<Always>::new("", cluster(&[(4, 1000), (4, 1000)])).unwrap();
/// assert_eq!(policy.pick(&request(100)), Decision::Queue);
/// ```
#[derive(Debug)]
pub struct Harness<P> {
    driver: Driver<P>,
}

impl<P: Policy> Harness<P> {
    /// Starts the policy with a configuration on a snapshot.
    ///
    /// # Errors
    /// The policy's own.
    pub fn new(config: &str, snapshot: Cluster) -> Result<Self, InitError> {
        Ok(Self { driver: Driver::new(config, snapshot, None)? })
    }

    /// Starts the policy as the successor of one that saved `previous`.
    ///
    /// # Errors
    /// The policy's own.
    pub fn succeed(config: &str, snapshot: Cluster, previous: &Saved) -> Result<Self, InitError> {
        Ok(Self { driver: Driver::new(config, snapshot, Some(previous))? })
    }

    /// What the policy would hand to its successor.
    pub fn save(&self) -> Option<Saved> {
        self.driver.save()
    }

    /// The view that the policy is shown.
    pub fn cluster(&self) -> &Cluster {
        self.driver.cluster()
    }

    /// The driver itself, for tests that speak in words.
    pub fn driver(&mut self) -> &mut Driver<P> {
        &mut self.driver
    }
}

impl<P: RoutePolicy> Harness<P> {
    /// Applies one event, numbered one higher than the last.
    pub fn event(&mut self, event: Event) {
        let seq = self.driver.cluster().seq() + 1;
        self.driver.apply(seq, &event.words());
    }

    /// Shorthand for [`Event::Busy`].
    pub fn busy(&mut self, chain: u32, jobs: u32) {
        self.event(Event::Busy(ChainId(chain), jobs));
    }

    /// Asks `pick`. Panics when the answer is no decision of the contract, which the SDK rules out.
    #[expect(clippy::expect_used, reason = "the driver encodes decisions only")]
    pub fn pick(&mut self, ask: &Request) -> Decision {
        Decision::decode(self.driver.pick(ask)).expect("a packed decision")
    }

    /// Asks `pick_affine`. Panics as [`Self::pick`] does.
    #[expect(clippy::expect_used, reason = "the driver encodes decisions only")]
    pub fn pick_affine(&mut self, ask: &Request, overlap: &[Overlap]) -> Decision {
        Decision::decode(self.driver.pick_affine(ask, &words(overlap))).expect("a packed decision")
    }

    /// Asks for the scores behind a decision.
    pub fn trace(&self, ask: &Request, overlap: &[Overlap]) -> Vec<Candidate> {
        self.driver.trace(ask, &words(overlap))
    }

    /// Asks `pull` for room on `chain`, at time 0 and with random bits 0.
    pub fn pull(&mut self, chain: u32, waiting: &[Waiting]) -> Option<usize> {
        let words: Vec<u64> = waiting.iter().flat_map(|request| request.words()).collect();
        let index = self.driver.pull(&Pull { now: 0, rnd: 0, chain: ChainId(chain) }, &words);
        (index != NONE).then_some(index as usize)
    }
}

impl<P: BatchPolicy> Harness<P> {
    /// Tells the policy what a tenant was served.
    pub fn served(&mut self, tenant: u32, prompt_tokens: u32, new_tokens: u32) {
        let seq = self.driver.cluster().seq() + 1;
        self.driver.apply_served(seq, &Served { tenant, prompt_tokens, new_tokens }.words());
    }

    /// Asks `step` for chain 0, at time 0 and with nothing in flight.
    pub fn step(&mut self, token_budget: u32, ready: &[Ready]) -> Vec<Order> {
        let words: Vec<u64> = ready.iter().flat_map(|it| it.words()).collect();
        let plan = self.driver.step(&Step { token_budget, ..Step::default() }, &words);
        plan.iter().map(|&word| Order::decode(word)).collect()
    }
}

/// What a policy said about a sequence, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To be run, at most so many tokens; 0 for as many as the budget allows.
    Run(usize, u32),
    /// To be left out.
    Hold(usize),
}

impl Order {
    fn decode(word: u64) -> Self {
        let index = low_half(word) as usize;
        if word >> 56 == 1 { Self::Run(index, (word >> 32) as u32 & 0xff_ffff) } else { Self::Hold(index) }
    }
}

impl<P: CachePolicy> Harness<P> {
    /// Asks which of `idle` go so that so many blocks become free, on chain 0 at time 0.
    pub fn victims(&mut self, need_blocks: u32, idle: &[Idle]) -> Vec<u32> {
        let words: Vec<u64> = idle.iter().flat_map(|it| it.words()).collect();
        self.driver.victims(&Evict { need_blocks, ..Evict::default() }, &words).to_vec()
    }
}

impl<P: PlacePolicy> Harness<P> {
    /// Asks for a plan.
    ///
    /// # Errors
    /// The policy's own.
    pub fn propose(&mut self, model: &Model, workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        self.driver.propose(model, workload, fleet)
    }
}

/// A snapshot of open, idle chains with ids from 0, each `(capacity, free_tokens)`.
#[must_use]
pub fn cluster(chains: &[(u32, u32)]) -> Cluster {
    let chains = (0..).zip(chains).map(|(id, &(capacity, tokens))| Chain::new(ChainId(id), capacity, tokens));
    Cluster::new(1, 0, chains.collect(), 0)
}

/// A request that reserves this many KV tokens, half of them its prompt.
#[must_use]
pub fn request(reserve: u32) -> Request {
    Request { reserve, prompt: reserve / 2, ..Request::default() }
}

/// A waiting request that reserves this many KV tokens, half of them its prompt.
#[must_use]
pub fn waiting(id: u64, reserve: u32) -> Waiting {
    Waiting { id, reserve, prompt: reserve / 2, ..Waiting::default() }
}

/// A snapshot of open, idle chains of four jobs and 100 tokens, whose ids have gaps: every third number is one.
#[must_use]
pub fn sparse(chains: u32) -> Cluster {
    let chain = |at| Chain::new(ChainId(at * 3), 4, 100).with_state(0, true, 100);
    Cluster::new(1, 0, (0..chains).map(chain).collect(), 0)
}

/// A long random history of a cluster of [`sparse`] chains: random bits (SplitMix64), with an event or without. The same each time.
pub fn history(chains: u32, mut check: impl FnMut(u64, Option<Event>)) {
    let mut state = 7_u64;
    let mut throw = |below: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut rnd = state;
        rnd = (rnd ^ (rnd >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        rnd = (rnd ^ (rnd >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (rnd ^ (rnd >> 31)) % below
    };
    for _ in 0..20_000 {
        let id = ChainId(throw(u64::from(chains)) as u32 * 3);
        let event = match throw(8) {
            0..3 => Some(Event::Busy(id, throw(6) as u32)),
            3 => Some(Event::FreeTokens(id, throw(100) as u32)),
            4 => Some(Event::Open(id, throw(3) > 0)),
            5 => Some(Event::Service(id, [0, 1, 90, 100, 110, 5000][throw(6) as usize])),
            _ => None,
        };
        check(throw(u64::MAX), event);
    }
}

fn words(overlap: &[Overlap]) -> Vec<u64> {
    overlap.iter().map(|it| it.word()).collect()
}

thread_local! {
    static LOGS: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

/// Takes the lines that policies of this thread have logged.
#[must_use]
pub fn take_logs() -> Vec<(Level, String)> {
    LOGS.take()
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn keep_log(level: Level, line: &str) {
    /// Lines that are kept; more are dropped, as the host would.
    const LOGS_MAX: usize = 1024;
    LOGS.with_borrow_mut(|logs| {
        if logs.len() < LOGS_MAX {
            logs.push((level, line.to_owned()));
        }
    });
}
