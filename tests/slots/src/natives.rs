//! The shipped policies as native code, from the same sources as their components, behind one interface in words.

use pointsman_engine::placement::synth::Scene;
use pointsman_engine::port::{Overlap, Pick, Pull, Waiting};
use pointsman_engine::snapshot::{RouteEvent, Snapshot};
use pointsman_engine::window::Ask;
use pointsman_policy::SlotKind;
use pointsman_policy::place::Proposal;
use pointsman_sdk::driver::Driver;
use pointsman_sdk::{
    BatchPolicy, CachePolicy, Chain, ChainId, Cluster, Evict, PlacePolicy, Policy, Request, RoutePolicy, Step,
};

#[path = "../../../plugins/batch-fair/src/lib.rs"]
mod batch_fair;
#[path = "../../../plugins/batch-fcfs/src/lib.rs"]
mod batch_fcfs;
#[path = "../../../plugins/batch-priority/src/lib.rs"]
mod batch_priority;
#[path = "../../../plugins/batch-srpt/src/lib.rs"]
mod batch_srpt;
#[path = "../../../plugins/route-cache-aware/src/lib.rs"]
mod cache_aware;
#[path = "../../../plugins/cache-cost-aware/src/lib.rs"]
mod cache_cost_aware;
#[path = "../../../plugins/cache-lru/src/lib.rs"]
mod cache_lru;
#[path = "../../../plugins/route-jffc/src/lib.rs"]
mod jffc;
#[path = "../../../plugins/route-jiq/src/lib.rs"]
mod jiq;
#[path = "../../../plugins/route-jsq/src/lib.rs"]
mod jsq;
#[path = "../../../plugins/place-even/src/lib.rs"]
mod place_even;
#[path = "../../../plugins/place-gbp-cr/src/lib.rs"]
mod place_gbp_cr;
#[path = "../../../plugins/place-jffc-only/src/lib.rs"]
mod place_jffc_only;
#[path = "../../../plugins/route-power-of-two/src/lib.rs"]
mod power_of_two;
#[path = "../../../plugins/route-round-robin/src/lib.rs"]
mod round_robin;
#[path = "../../../plugins/route-sa-jsq/src/lib.rs"]
mod sa_jsq;
#[path = "../../../plugins/route-sed/src/lib.rs"]
mod sed;
#[path = "../../../plugins/route-slo/src/lib.rs"]
mod slo;

use crate::scenes;

/// A policy that runs natively. Answers are as they would cross the border of a component.
pub trait Native {
    /// What changed.
    fn apply(&mut self, seq: u64, events: &[RouteEvent]);
    /// The packed decision.
    fn pick(&mut self, ask: &Pick, overlap: &[Overlap]) -> u64;
    /// The index, or all ones.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> u32;
}

impl<P: RoutePolicy> Native for Driver<P> {
    fn apply(&mut self, seq: u64, events: &[RouteEvent]) {
        let words: Vec<u64> = events.iter().flat_map(|event| event.words()).collect();
        self.apply(seq, &words);
    }

    fn pick(&mut self, ask: &Pick, overlap: &[Overlap]) -> u64 {
        let Pick { now, rnd, tenant, class, prompt, reserve, deadline, session, hints, .. } = *ask;
        let ask = Request { now: now.0, rnd, tenant, class, prompt, reserve, deadline: deadline.0, session, hints };
        if P::NEEDS.prefix_overlap {
            let words: Vec<u64> = overlap.iter().map(|overlap| overlap.word()).collect();
            self.pick_affine(&ask, &words)
        } else {
            self.pick(&ask)
        }
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> u32 {
        let words: Vec<u64> = waiting.iter().flat_map(Waiting::words).collect();
        let ask = pointsman_sdk::Pull { now: ask.now.0, rnd: ask.rnd, chain: ChainId(ask.chain.0) };
        self.pull(&ask, &words)
    }
}

/// Starts a policy natively on a view, with its default configuration.
pub type Start = fn(&Snapshot) -> Box<dyn Native>;

/// Name and start of each shipped policy.
pub const ALL: &[(&str, Start)] = &[
    ("route-jsq", start::<jsq::Jsq>),
    ("route-round-robin", start::<round_robin::RoundRobin>),
    ("route-jffc", start::<jffc::Jffc>),
    ("route-sa-jsq", start::<sa_jsq::SaJsq>),
    ("route-sed", start::<sed::Sed>),
    ("route-jiq", start::<jiq::Jiq>),
    ("route-power-of-two", start::<power_of_two::PowerOfTwo>),
    ("route-cache-aware", start::<cache_aware::CacheAware>),
    ("route-slo", start::<slo::Slo>),
];

fn start<P: RoutePolicy + 'static>(view: &Snapshot) -> Box<dyn Native> {
    let chains = view.chains.iter().map(|chain| {
        let made = Chain::new(ChainId(chain.id.0), chain.capacity, chain.free_tokens);
        made.with_state(chain.busy, chain.open, chain.service.0)
    });
    let cluster = Cluster::new(view.epoch, view.seq, chains.collect(), view.queued);
    Box::new(Driver::<P>::new("", cluster, None).expect("the default configuration is good"))
}

/// A policy that is asked with a window and runs natively.
pub trait NativeWindow {
    /// What was served, in words.
    fn apply(&mut self, seq: u64, words: &[u64]);
    /// The answer, in words.
    fn ask(&mut self, ask: &Ask, window: &[u64]) -> Vec<u64>;
}

struct Batch<P>(Driver<P>);
struct Cache<P>(Driver<P>);

impl<P: BatchPolicy> NativeWindow for Batch<P> {
    fn apply(&mut self, seq: u64, words: &[u64]) {
        self.0.apply_served(seq, words);
    }

    fn ask(&mut self, ask: &Ask, window: &[u64]) -> Vec<u64> {
        let Ask { now, rnd, chain, want, have, .. } = *ask;
        let ask = Step { now: now.0, rnd, chain: ChainId(chain.0), token_budget: want, in_flight: have };
        self.0.step(&ask, window).to_vec()
    }
}

impl<P: CachePolicy> NativeWindow for Cache<P> {
    fn apply(&mut self, _seq: u64, _words: &[u64]) {}

    fn ask(&mut self, ask: &Ask, window: &[u64]) -> Vec<u64> {
        let Ask { now, rnd, chain, want, have, .. } = *ask;
        let ask = Evict { now: now.0, rnd, chain: ChainId(chain.0), need_blocks: want, free_blocks: have };
        self.0.victims(&ask, window).iter().map(|&index| index.into()).collect()
    }
}

/// Starts such a policy natively, with its default configuration.
pub type StartWindow = fn() -> Box<dyn NativeWindow>;

/// Name, slot and start of each shipped policy that is asked with a window.
pub const WINDOWS: &[(&str, SlotKind, StartWindow)] = &[
    ("batch-fcfs", SlotKind::Batch, batch::<batch_fcfs::Fcfs>),
    ("batch-priority", SlotKind::Batch, batch::<batch_priority::Priority>),
    ("batch-srpt", SlotKind::Batch, batch::<batch_srpt::Srpt>),
    ("batch-fair", SlotKind::Batch, batch::<batch_fair::Fair>),
    ("cache-lru", SlotKind::Cache, cache::<cache_lru::Lru>),
    ("cache-cost-aware", SlotKind::Cache, cache::<cache_cost_aware::CostAware>),
];

/// Name and slot of every shipped policy that a running engine asks.
pub fn all() -> impl Iterator<Item = (&'static str, SlotKind)> {
    let routes = ALL.iter().map(|(name, _)| (*name, SlotKind::Route));
    routes.chain(WINDOWS.iter().map(|(name, slot, _)| (*name, *slot)))
}

fn driver<P: Policy>() -> Driver<P> {
    Driver::new("", Cluster::new(0, 0, Vec::new(), 0), None).expect("the default configuration is good")
}

fn batch<P: BatchPolicy + 'static>() -> Box<dyn NativeWindow> {
    Box::new(Batch(driver::<P>()))
}

fn cache<P: CachePolicy + 'static>() -> Box<dyn NativeWindow> {
    Box::new(Cache(driver::<P>()))
}

/// A placement policy that runs natively, asked about one scene after the other.
pub type Place = Box<dyn FnMut(&Scene) -> Proposal>;

/// Starts such a policy, with its default configuration.
pub type StartPlace = fn() -> Place;

/// Name and start of each shipped placement policy.
pub const PLACES: &[(&str, StartPlace)] = &[
    ("place-even", place::<place_even::Even>),
    ("place-gbp-cr", place::<place_gbp_cr::GbpCr>),
    ("place-jffc-only", place::<place_jffc_only::JffcOnly>),
];

fn place<P: PlacePolicy + 'static>() -> Place {
    let mut driver = driver::<P>();
    Box::new(move |scene| {
        let (model, workload, fleet) = scenes::question(scene);
        let outcome = driver.propose(&model, &workload, &fleet).expect("a shipped policy can work with any question");
        scenes::proposal(outcome)
    })
}
