//! Policies in Wasm against the same in native code, and against the builtin, over random histories: the same answers, whoever is
//! asked, also after the policy was swapped in midway.
//!
//! `POINTSMAN_LONG=100000 cargo test --release -p pointsman-slots --test parity` runs so many histories of each policy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_engine::{decision::RouteDecision, port::Overlap, random};
use pointsman_policy::{Guard, PolicyHost, RouteSlot};
use pointsman_slots::{amount, natives, shipped};

/// Reproducible numbers.
struct Random(u64, u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.1 += 1;
        random::bits(self.0, self.1)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.word() % u64::from(bound)) as u32
    }
}

/// A view that random events change, so that a late newcomer can be given the present one.
struct World {
    random: Random,
    view: Snapshot,
}

impl World {
    fn new(seed: u64, chains: u32) -> Self {
        let mut random = Random(seed, 0);
        let chain = |id| ChainView {
            id: ChainId(id),
            capacity: 1 + random.below(8),
            busy: 0,
            free_tokens: random.below(300),
            open: true,
            service: Micros(0),
        };
        let chains = (0..chains).map(chain).collect();
        Self { random, view: Snapshot { epoch: 0, seq: 0, chains, queued: 0 } }
    }

    fn event(&mut self) -> RouteEvent {
        let random = &mut self.random;
        self.view.seq += 1;
        let at = random.below(self.view.chains.len() as u32);
        let chain = &mut self.view.chains[at as usize];
        match random.below(5) {
            0 => {
                self.view.queued = random.below(3).saturating_sub(1);
                RouteEvent::Queued(self.view.queued)
            }
            1 => {
                chain.free_tokens = random.below(300);
                RouteEvent::FreeTokens(chain.id, chain.free_tokens)
            }
            2 => {
                chain.open = random.below(4) > 0;
                RouteEvent::Open(chain.id, chain.open)
            }
            3 => {
                chain.service = Micros(u64::from(random.below(1_000_000)));
                RouteEvent::Service(chain.id, chain.service)
            }
            _ => {
                chain.busy = random.below(chain.capacity + 1);
                RouteEvent::Busy(chain.id, chain.busy)
            }
        }
    }

    fn pick(&mut self) -> Pick {
        let reserve = 1 + self.random.below(200);
        Pick {
            id: RequestId(self.view.seq),
            seq: self.view.seq,
            now: Micros(self.view.seq * 10),
            rnd: self.random.word(),
            tenant: self.random.below(3),
            class: self.random.below(2),
            prompt: reserve / 2,
            reserve,
            deadline: Micros(u64::from(self.random.below(2) * self.random.below(2_000_000))),
            session: self.random.below(9).into(),
            hints: 0,
        }
    }

    fn pull(&mut self) -> (Pull, Vec<Waiting>) {
        let chain = ChainId(self.random.below(self.view.chains.len() as u32));
        let waiting = (0..self.random.below(65)).map(|id| Waiting {
            id: RequestId(id.into()),
            tenant: self.random.below(3),
            class: 0,
            prompt: 1,
            reserve: 1 + self.random.below(400),
            waited: Micros(u64::from(100 - id)),
        });
        let waiting = waiting.collect();
        let (seq, now) = (self.view.seq, Micros(self.view.seq * 10));
        (Pull { seq, now, rnd: self.random.word(), chain }, waiting)
    }
}

fn renew(policy: &mut impl RoutePolicy, view: &Snapshot) -> bool {
    let wanted = policy.wants_snapshot();
    if wanted {
        policy.init(view).unwrap();
    }
    wanted
}

/// One history of one policy, twice: through the slot and natively.
fn history(slot: &mut RouteSlot, start: natives::Start, seed: u64, chains: u32, steps: u32, name: &str) {
    let mut world = World::new(seed, chains);
    slot.init(&world.view).unwrap();
    let mut native = start(&world.view);
    for step in 0..steps {
        let events: Vec<_> = (0..world.random.below(9)).map(|_| world.event()).collect();
        if !events.is_empty() {
            slot.apply(world.view.seq, &events).unwrap();
            native.apply(world.view.seq, &events);
        }
        let ask = world.pick();
        let mut overlap = Vec::new();
        for chain in &world.view.chains {
            if world.random.below(3) == 0 {
                let tokens = 1 + world.random.below(ask.prompt.max(1));
                overlap.push(Overlap { chain: chain.id, tokens });
            }
        }
        let overlap = if slot.wants_overlap() { overlap } else { Vec::new() };
        let answer = slot.pick(&ask, &overlap).map(RouteDecision::encode);
        assert_eq!(
            answer,
            Ok(native.pick(&ask, &overlap)),
            "{name}, seed {seed}, step {step}: {ask:?}\n{:?}",
            world.view
        );
        let (ask, waiting) = world.pull();
        let index = slot.pull(&ask, &waiting).map(|index| index.unwrap_or(u32::MAX));
        assert_eq!(index, Ok(native.pull(&ask, &waiting)), "{name}, seed {seed}, step {step}: {ask:?}");
    }
}

#[test]
fn every_policy_decides_in_wasm_as_it_does_natively() {
    let host = PolicyHost::new().unwrap();
    for (name, start) in natives::ALL {
        let artifact = shipped(name);
        for seed in 0..amount(30) {
            // A policy keeps state from instance to instance, so each history has one of its own.
            let mut slot = RouteSlot::default();
            drop(slot.swap_in(host.prepare(&artifact, "").unwrap(), Guard::default()));
            let (chains, steps) = if seed % 20 == 0 { (512, 20) } else { (1 + seed as u32 % 9, 12) };
            history(&mut slot, *start, seed, chains, steps, name);
        }
    }
}

#[test]
fn jsq_in_wasm_decides_as_the_builtin_does() {
    let host = PolicyHost::new().unwrap();
    let jsq = shipped("route-jsq");
    for (seed, chains) in [(1, 1), (2, 2), (3, 7), (4, 64), (5, 512)] {
        let mut world = World::new(seed, chains);
        let mut slot = RouteSlot::default();
        drop(slot.swap_in(host.prepare(&jsq, "").unwrap(), Guard::default()));
        let mut native = Builtin::default();
        for step in 0..600 {
            if step == 300 {
                drop(slot.swap_in(host.prepare(&jsq, "").unwrap(), Guard::default()));
            }
            let events: Vec<_> = (0..world.random.below(9)).map(|_| world.event()).collect();
            if !renew(&mut slot, &world.view) {
                slot.apply(world.view.seq, &events).unwrap();
            }
            if !renew(&mut native, &world.view) {
                native.apply(world.view.seq, &events).unwrap();
            }
            let ask = world.pick();
            assert_eq!(
                slot.pick(&ask, &[]),
                native.pick(&ask, &[]),
                "seed {seed}, step {step}: {ask:?}\n{:?}",
                world.view
            );
            let (ask, waiting) = world.pull();
            assert_eq!(slot.pull(&ask, &waiting), native.pull(&ask, &waiting), "seed {seed}, step {step}: {ask:?}");
        }
        assert_eq!(slot.report().faults.iter().sum::<u64>(), 0);
    }
}

#[test]
fn round_robin_hands_its_turn_over() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::default();
    let mut world = World::new(9, 3);
    for chain in &mut world.view.chains {
        (chain.capacity, chain.free_tokens) = (100, 1_000_000);
    }
    let mut picks = Vec::new();
    for step in 0..8 {
        if step % 2 == 0 {
            drop(slot.swap_in(host.prepare(&shipped("route-round-robin"), "").unwrap(), Guard::default()));
        }
        renew(&mut slot, &world.view);
        picks.push(slot.pick(&world.pick(), &[]).unwrap());
    }
    let turn = |chain| RouteDecision::Dispatch(ChainId(chain));
    assert_eq!(picks, [0, 1, 2, 0, 1, 2, 0, 1].map(turn));
}

#[test]
fn describes_itself_by_name_and_refuses_unknown_settings() {
    let host = PolicyHost::new().unwrap();
    for (name, _) in natives::ALL {
        assert_eq!(&*host.prepare(&shipped(name), "").unwrap().descriptor().name, *name);
        let refusal = host.prepare(&shipped(name), r#"{"no-such-setting": 1}"#).unwrap_err();
        assert_eq!(refusal.stage, pointsman_policy::Stage::Init, "{refusal}");
    }
}
