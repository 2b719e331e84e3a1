//! `route-jsq` in Wasm against the native builtin, over random histories: the same answers, whoever is asked, also after the
//! policy was swapped in midway. And the other policies that ship do what they say through the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use std::path::Path;

use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::{Artifact, PolicyHost, RouteSlot};

fn shipped(name: &str) -> Artifact {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../plugins/dist/{name}.wasm"));
    Artifact::new(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// A small generator of reproducible numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(bound)) as u32
    }
}

/// A view that random events change, so that a late newcomer can be given the present one.
struct World {
    random: Random,
    view: Snapshot,
}

impl World {
    fn new(seed: u64, chains: u32) -> Self {
        let mut random = Random(seed);
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
            seq: self.view.seq,
            now: Micros(self.view.seq * 10),
            rnd: self.random.below(u32::MAX).into(),
            tenant: self.random.below(3),
            class: self.random.below(2),
            prompt: reserve / 2,
            reserve,
            deadline: Micros(0),
            session: 0,
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
        (Pull { seq, now, rnd: self.random.below(u32::MAX).into(), chain }, waiting)
    }
}

fn renew(policy: &mut impl RoutePolicy, view: &Snapshot) -> bool {
    let wanted = policy.wants_snapshot();
    if wanted {
        policy.init(view).unwrap();
    }
    wanted
}

#[test]
fn jsq_in_wasm_decides_as_the_builtin_does() {
    let host = PolicyHost::new().unwrap();
    let jsq = shipped("route-jsq");
    for (seed, chains) in [(1, 1), (2, 2), (3, 7), (4, 64), (5, 512)] {
        let mut world = World::new(seed, chains);
        let mut slot = RouteSlot::new();
        drop(slot.swap_in(host.prepare(&jsq, "").unwrap()));
        let mut native = Builtin::default();
        for step in 0..600 {
            if step == 300 {
                drop(slot.swap_in(host.prepare(&jsq, "").unwrap()));
            }
            let events: Vec<_> = (0..world.random.below(9)).map(|_| world.event()).collect();
            if !renew(&mut slot, &world.view) {
                slot.apply(world.view.seq, &events).unwrap();
            }
            if !renew(&mut native, &world.view) {
                native.apply(world.view.seq, &events).unwrap();
            }
            let ask = world.pick();
            assert_eq!(slot.pick(&ask), native.pick(&ask), "seed {seed}, step {step}: {ask:?}\n{:?}", world.view);
            let (ask, waiting) = world.pull();
            assert_eq!(slot.pull(&ask, &waiting), native.pull(&ask, &waiting), "seed {seed}, step {step}: {ask:?}");
        }
        assert_eq!(slot.report().faults.iter().sum::<u64>(), 0);
    }
}

#[test]
fn round_robin_hands_its_turn_over() {
    let host = PolicyHost::new().unwrap();
    let mut slot = RouteSlot::new();
    let mut world = World::new(9, 3);
    for chain in &mut world.view.chains {
        (chain.capacity, chain.free_tokens) = (100, 1_000_000);
    }
    let mut picks = Vec::new();
    for step in 0..8 {
        if step % 2 == 0 {
            drop(slot.swap_in(host.prepare(&shipped("route-round-robin"), "").unwrap()));
        }
        renew(&mut slot, &world.view);
        picks.push(slot.pick(&world.pick()).unwrap());
    }
    let turn = |chain| pointsman_engine::decision::RouteDecision::Dispatch(ChainId(chain));
    assert_eq!(picks, [0, 1, 2, 0, 1, 2, 0, 1].map(turn));
}

#[test]
fn describes_itself_by_name_and_refuses_unknown_settings() {
    let host = PolicyHost::new().unwrap();
    for name in ["route-jsq", "route-round-robin"] {
        assert_eq!(&*host.prepare(&shipped(name), "").unwrap().descriptor().name, name);
        let refusal = host.prepare(&shipped(name), r#"{"no-such-setting": 1}"#).unwrap_err();
        assert_eq!(refusal.stage, pointsman_policy::Stage::Init, "{refusal}");
    }
}
