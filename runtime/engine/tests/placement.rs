//! Plans of any numbers: the check never panics, and what it allows is right by a plain count of every block.

use std::collections::BTreeMap;

use pointsman_engine::placement::{
    Fleet, Health, Hop, Model, Path, Plan, Range, Server, ServerId, check, service_ns, synth,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Small numbers, so that they meet, and now and then any.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0_u32..6, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0_u64..40, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn model() -> impl Strategy<Value = Model> {
    let fields = (number(), size(), size(), size(), size());
    fields.prop_map(|(blocks, block_bytes, slot_bytes, head_bytes, tail_bytes)| Model {
        blocks,
        block_bytes,
        slot_bytes,
        head_bytes,
        tail_bytes,
    })
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let state = prop_oneof![8 => Just(Health::Ready), 1 => Just(Health::Draining), 1 => Just(Health::Gone)];
    let server = (number(), state, size(), size(), size()).prop_map(|(id, state, mem_bytes, visit_ns, block_ns)| {
        Server { id: ServerId(id), state, mem_bytes, visit_ns, block_ns, first_block: 0, blocks: 0 }
    });
    (vec(server, 0..6), any::<bool>()).prop_map(|(mut servers, order)| {
        if order {
            servers.sort_by_key(|server| server.id);
            servers.dedup_by_key(|server| server.id);
        }
        Fleet { servers, ..Fleet::default() }
    })
}

fn path() -> impl Strategy<Value = Path> {
    let hop = (number(), number(), number());
    let hop = hop.prop_map(|(server, first_block, blocks)| Hop { server: ServerId(server), first_block, blocks });
    (vec(hop, 0..5), number(), any::<u64>()).prop_map(|(hops, capacity, service_ns)| Path {
        hops,
        capacity,
        service_ns,
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let range = (number(), number(), number(), number());
    let range = range.prop_map(|(server, first_block, blocks, slots)| Range {
        server: ServerId(server),
        first_block,
        blocks,
        slots,
    });
    (vec(range, 0..6), vec(path(), 0..4)).prop_map(|(ranges, paths)| Plan { ranges, paths, ..Plan::default() })
}

/// A plan that is nearly right: paths walk through ranges in order, slots are counted; then one number may be changed.
fn walked() -> impl Strategy<Value = (Model, Fleet, Plan)> {
    let steps = vec((1_u32..4, 0_u32..2, 0_u32..2), 1..5);
    (steps, vec(1_u32..4, 1..4), size(), size(), (size(), size()), 0_usize..12, number()).prop_map(
        |(steps, capacities, block_bytes, slot_bytes, (head_bytes, tail_bytes), place, value)| {
            let blocks = steps.iter().map(|step| step.0).sum();
            let model = Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes };
            let (mut hops, mut ranges, mut servers, mut next) = (Vec::new(), Vec::new(), Vec::new(), 0);
            let jobs: u32 = capacities.iter().sum();
            for (id, &(count, before, behind)) in (0..).zip(&steps) {
                let server = ServerId(id);
                hops.push(Hop { server, first_block: next, blocks: count });
                // The range may begin before the hop and end behind it.
                let first_block = next - before.min(next);
                let end = (next + count + behind).min(blocks);
                ranges.push(Range { server, first_block, blocks: end - first_block, slots: jobs * count });
                let (mem_bytes, state) = (1000, Health::Ready);
                servers.push(Server { id: server, state, mem_bytes, visit_ns: 1, block_ns: 1, first_block, blocks: 0 });
                next += count;
            }
            let path = |&capacity| Path { hops: hops.clone(), capacity, service_ns: 0 };
            let paths = capacities.iter().map(path).collect();
            let mut plan = Plan { ranges, paths, ..Plan::default() };
            let (at, on) = (value as usize % plan.ranges.len(), value as usize % plan.paths.len());
            match place {
                0 => plan.ranges[at].slots = value,
                1 => plan.ranges[at].blocks = value,
                2 => plan.ranges[at].first_block = value,
                3 => plan.ranges[at].server = ServerId(value),
                4 => plan.paths[on].capacity = value,
                5 => plan.paths[on].hops[at].blocks = value,
                6 => plan.paths[on].hops[at].first_block = value,
                7 => plan.paths[on].hops[at].server = ServerId(value),
                _ => {}
            }
            (model, Fleet { servers, ..Fleet::default() }, plan)
        },
    )
}

/// The rules once more, block by block, without a thought for speed. For small numbers only.
fn right(model: &Model, fleet: &Fleet, plan: &Plan) -> bool {
    let small = |number: u32| number <= 64;
    let mut wanted = BTreeMap::new();
    for path in &plan.paths {
        let mut visited = Vec::new();
        for hop in &path.hops {
            if !small(hop.blocks) || !small(hop.first_block) || hop.blocks == 0 {
                return false;
            }
            for block in hop.first_block..hop.first_block + hop.blocks {
                visited.push(block);
                *wanted.entry((hop.server, block)).or_insert(0) += u64::from(path.capacity);
            }
        }
        if !visited.into_iter().eq(0..model.blocks) || !(1..=256).contains(&path.capacity) {
            return false;
        }
    }
    let mut seen = Vec::new();
    for range in &plan.ranges {
        if !small(range.blocks) || !small(range.first_block) || seen.contains(&range.server) {
            return false;
        }
        seen.push(range.server);
        let held = range.first_block..range.first_block + range.blocks;
        let Some(server) = fleet.servers.iter().find(|it| it.id == range.server) else { return false };
        let mut free = i128::from(server.mem_bytes) - i128::from(range.slots) * i128::from(model.slot_bytes);
        for block in held.clone() {
            free -= i128::from(model.block_bytes);
            free -= if block == 0 { i128::from(model.head_bytes) } else { 0 };
            free -= if block + 1 == model.blocks { i128::from(model.tail_bytes) } else { 0 };
        }
        let mut slots = 0;
        for (_, jobs) in wanted.extract_if(.., |&(id, block), _| id == range.server && held.contains(&block)) {
            slots += jobs;
        }
        let fits = free >= 0 && slots <= u64::from(range.slots) && held.end <= model.blocks;
        if !fits || held.is_empty() || server.state != Health::Ready {
            return false;
        }
    }
    // What is left is wanted of a server that does not hold it.
    wanted.is_empty() && !plan.paths.is_empty() && model.blocks > 0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_numbers_are_answered(model in model(), fleet in fleet(), plan in plan()) {
        let answer = check(&model, &fleet, &plan);
        if answer.is_ok() {
            prop_assert!(right(&model, &fleet, &plan));
        }
        if let Err(violation) = answer {
            prop_assert!(!violation.to_string().is_empty());
        }
        for path in &plan.paths {
            let _ = service_ns(&fleet, path);
        }
    }

    #[test]
    fn a_plan_is_allowed_just_when_it_is_right((model, fleet, plan) in walked()) {
        let answer = check(&model, &fleet, &plan);
        prop_assert_eq!(answer.is_ok(), right(&model, &fleet, &plan), "{:?}", answer);
    }

    #[test]
    fn made_up_scenes_are_answered(seed in any::<u64>(), plan in plan()) {
        let scene = synth::scene(seed);
        let _ = check(&scene.model, &scene.fleet, &plan);
        let present = Plan { paths: scene.fleet.paths.clone(), ..plan };
        let _ = check(&scene.model, &scene.fleet, &present);
    }
}

#[test]
fn nearly_right_plans_are_of_both_kinds() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let allowed = (0..1000).filter(|_| {
        let (model, fleet, plan) = walked().new_tree(&mut runner).unwrap().current();
        check(&model, &fleet, &plan).is_ok()
    });
    let allowed = allowed.count();
    assert!((100..900).contains(&allowed), "{allowed} of 1000");
}
