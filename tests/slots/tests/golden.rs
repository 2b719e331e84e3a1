//! What each shipped policy answers to a fixed history, kept beside it as `plugins/NAME/golden.txt`: a change of behaviour that
//! nobody meant shows here, in words.
//!
//! `POINTSMAN_BLESS=1 cargo test --workspace --test golden` writes the files anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper of a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pointsman_engine::decision::RouteDecision;
use pointsman_engine::placement::synth;
use pointsman_engine::window::{Kind, Order};
use pointsman_policy::exam::windows;
use pointsman_policy::exam::world::World;
use pointsman_policy::place::Proposal;
use pointsman_slots::natives::{self, NativeWindow, Place};

const SEEDS: u64 = 4;
const STEPS: u32 = 12;

fn route(start: natives::Start) -> String {
    let mut text = String::new();
    for seed in 0..SEEDS {
        let mut world = World::new(seed, 2 + 3 * seed as u32);
        let mut policy = start(&world.view);
        for _ in 0..STEPS {
            let events: Vec<_> = (0..world.below(9)).map(|_| world.event()).collect();
            policy.apply(world.view.seq, &events);
            let ask = world.pick();
            let overlap = world.overlap(&ask);
            let decision = RouteDecision::decode(policy.pick(&ask, &overlap)).unwrap();
            let (pull, waiting) = world.pull();
            let index = policy.pull(&pull, &waiting);
            let taken = if index == u32::MAX { "none".to_owned() } else { index.to_string() };
            let (reserve, chain, waiting) = (ask.reserve, pull.chain.0, waiting.len());
            writeln!(text, "pick {reserve}: {decision:?}; pull for {chain} of {waiting}: {taken}").unwrap();
        }
    }
    text
}

fn window(kind: Kind, policy: &mut dyn NativeWindow) -> String {
    let mut text = String::new();
    let mut world = World::new(1, 3);
    for _ in 0..SEEDS as u32 * STEPS {
        let words: Vec<u64> = (0..world.below(5)).flat_map(|_| windows::served(&mut world).words()).collect();
        world.view.seq += words.len() as u64 / 2;
        policy.apply(world.view.seq, &words);
        let (ask, window) = windows::question(&mut world, kind);
        let answer = policy.ask(&ask, &window);
        let entries = window.len() / kind.words();
        let told: Vec<String> = match kind {
            Kind::Step => answer
                .iter()
                .map(|word| match Order::decode(*word).unwrap() {
                    Order::Run { index, tokens: 0 } => index.to_string(),
                    Order::Run { index, tokens } => format!("{index} ({tokens})"),
                    Order::Hold(index) => format!("not {index}"),
                })
                .collect(),
            Kind::Victims => answer.iter().map(u64::to_string).collect(),
        };
        let told = if told.is_empty() { "nobody".to_owned() } else { told.join(" ") };
        writeln!(text, "{} {} of {entries}: {told}", kind.name(), ask.want).unwrap();
    }
    text
}

fn place(mut policy: Place) -> String {
    let mut text = String::new();
    for seed in 0..24 {
        match policy(&synth::scene(seed)) {
            Proposal::Keep => writeln!(text, "scene {seed}: keep").unwrap(),
            Proposal::Infeasible(why) => writeln!(text, "scene {seed}: {why}").unwrap(),
            Proposal::Replace(plan) => {
                let (servers, jobs) = (plan.ranges.len(), plan.reserved_jobs);
                writeln!(text, "scene {seed}: {servers} servers, {jobs} jobs reserved").unwrap();
                for path in &plan.paths {
                    let hop = |hop: &pointsman_engine::placement::Hop| {
                        format!("{}:{}+{}", hop.server.0, hop.first_block, hop.blocks)
                    };
                    let hops: Vec<String> = path.hops.iter().map(hop).collect();
                    let (capacity, micros) = (path.capacity, path.service_ns / 1000);
                    writeln!(text, "  {capacity} jobs, {micros} us: {}", hops.join(" ")).unwrap();
                }
            }
        }
    }
    text
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins").join(name).join("golden.txt");
    if std::env::var_os("POINTSMAN_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Some((at, (kept, now))) = (1..).zip(kept.lines().zip(text.lines())).find(|(_, (kept, now))| kept != now) {
        panic!("{name}, line {at}: was {kept:?}, is {now:?}; if that is meant, see the head of this test");
    }
    assert_eq!(kept.lines().count(), text.lines().count(), "{name}");
}

#[test]
fn every_policy_answers_as_it_did() {
    for (name, start) in natives::ALL {
        compare(name, &route(*start));
    }
    for (name, slot, start) in natives::WINDOWS {
        compare(name, &window(slot.window().unwrap(), &mut *start()));
    }
    for (name, start) in natives::PLACES {
        compare(name, &place(start()));
    }
}
