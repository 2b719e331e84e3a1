//! Servers by hand, a plain check of every plan, and numbers at the ends of their ranges.

use super::*;
use pointsman_sdk::testing::{Harness, cluster};
use pointsman_sdk::{Hop, Range, ServerId};

/// Ten blocks of 100 bytes and slots of 10.
const MODEL: Model = Model { blocks: 10, block_bytes: 100, slot_bytes: 10, head_bytes: 30, tail_bytes: 20 };

/// Empty ready servers with ids from 0; those with more memory are slower.
fn fleet(mem_bytes: &[u64]) -> Fleet {
    let server = |(id, &mem_bytes)| {
        let visit_ns = 1000 * u64::from(id);
        Server { id: ServerId(id), mem_bytes, visit_ns, block_ns: 10, ..Server::default() }
    };
    Fleet { epoch: 1, servers: (0..).zip(mem_bytes).map(server).collect(), ..Fleet::default() }
}

fn ask(model: &Model, load: &Workload, fleet: &Fleet) -> Outcome {
    let outcome = Harness::<JffcOnly>::new("", cluster(&[])).unwrap().propose(model, load, fleet).unwrap();
    if let Outcome::Replace(plan) = &outcome {
        check(model, fleet, plan);
    }
    outcome
}

fn planned(model: &Model, fleet: &Fleet) -> Placement {
    match ask(model, &Workload::default(), fleet) {
        Outcome::Replace(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn infeasible(model: &Model, fleet: &Fleet) -> String {
    match ask(model, &Workload::default(), fleet) {
        Outcome::Infeasible(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The host's rules, for paths of one hop.
fn check(model: &Model, fleet: &Fleet, plan: &Placement) {
    assert!((1..=512).contains(&plan.paths.len()) && plan.ranges.len() == plan.paths.len(), "{plan:?}");
    for (range, path) in plan.ranges.iter().zip(&plan.paths) {
        let &Range { server, first_block, blocks, slots } = range;
        assert_eq!((first_block, blocks, slots), (0, model.blocks, path.capacity * blocks));
        assert_eq!(path.hops, [Hop { server, first_block, blocks }]);
        assert!((1..=256).contains(&path.capacity));
        let there = fleet.servers.iter().find(|it| it.id == server).unwrap();
        let bytes = u128::from(blocks) * u128::from(model.block_bytes)
            + u128::from(slots) * u128::from(model.slot_bytes)
            + u128::from(model.head_bytes)
            + u128::from(model.tail_bytes);
        assert!(there.state == Health::Ready && bytes <= there.mem_bytes.into(), "{bytes} {there:?}");
        let more = bytes + u128::from(blocks) * u128::from(model.slot_bytes);
        let countable = u64::from(slots) + u64::from(blocks) <= u32::MAX.into();
        assert!(path.capacity == 256 || !countable || more > there.mem_bytes.into(), "{path:?}");
    }
    assert!(plan.ranges.windows(2).all(|pair| pair[0].server < pair[1].server));
}

/// The fleet after this plan was carried out.
fn carried_out(mut fleet: Fleet, plan: &Placement) -> Fleet {
    for server in &mut fleet.servers {
        server.blocks = plan.ranges.iter().find(|range| range.server == server.id).map_or(0, |range| range.blocks);
    }
    fleet.paths = plan.paths.clone();
    fleet
}

#[test]
fn each_server_that_holds_the_model_is_a_path() {
    // 1000 + 30 + 20, and 100 for each job.
    let plan = planned(&MODEL, &fleet(&[1150, 1149, 1000, 1349, 1_000_000]));
    let found: Vec<_> = plan.paths.iter().map(|it| (it.hops[0].server.0, it.capacity, it.service_ns)).collect();
    assert_eq!(found, [(0, 1, 100), (3, 2, 3100), (4, 256, 4100)]);
    assert_eq!((plan.reserved_jobs, plan.predicted_ns), (0, (100 + 2 * 3100 + 256 * 4100) / 259));
    assert_eq!(
        plan.note,
        "the whole model on each of 3 of 5 ready servers, for 259 jobs; no rate is known: the predicted time is the \
         paths' mean by jobs, without waiting"
    );
}

#[test]
fn the_papers_servers_take_102_jobs() {
    let model = Model { blocks: 32, block_bytes: 437_500_000, slot_bytes: 33_600_000, head_bytes: 0, tail_bytes: 0 };
    let (large, small) = (40_000_000_000, 20_000_000_000);
    let plan = planned(&model, &fleet(&[large, large, large, small, small, small, small, small, small]));
    let capacities: Vec<u32> = plan.paths.iter().map(|path| path.capacity).collect();
    assert_eq!(capacities, [24, 24, 24, 5, 5, 5, 5, 5, 5]);
}

#[test]
fn the_prediction_is_the_lower_bound_where_there_is_a_rate() {
    let fleet = fleet(&[1150]);
    let at = |rate_milli| match ask(&MODEL, &Workload { rate_milli, ..Workload::default() }, &fleet) {
        Outcome::Replace(plan) => plan.predicted_ns,
        other => panic!("{other:?}"),
    };
    // One server, 100 ns a job: M/M/1 with half the load takes twice the time.
    assert!(at(5_000_000_000).abs_diff(200) <= 1);
    assert_eq!(at(10_000_000_000), 0);
}

#[test]
fn only_ready_servers_are_planned_with() {
    let mut servers = fleet(&[1150, 1150, 1150]);
    servers.servers[0].state = Health::Draining;
    servers.servers[1].state = Health::Gone;
    assert_eq!(planned(&MODEL, &servers).ranges[0].server, ServerId(2));
    servers.servers[2].state = Health::Gone;
    assert_eq!(infeasible(&MODEL, &servers), "none of 3 servers is ready");
    assert_eq!(infeasible(&MODEL, &fleet(&[])), "none of 0 servers is ready");
    assert_eq!(infeasible(&Model { blocks: 0, ..MODEL }, &fleet(&[5000])), "the model has no blocks");
    assert_eq!(
        infeasible(&MODEL, &fleet(&[1149, 7])),
        "no server holds the whole model: 10 blocks of 100 bytes with 10 for one job's keys and values, 30 beside the \
         first and 20 beside the last are 1150 bytes, and the largest of 2 ready servers has 1149"
    );
}

#[test]
fn what_is_there_already_is_kept() {
    let servers = fleet(&[1150, 100, 1350]);
    let plan = planned(&MODEL, &servers);
    let mut now = carried_out(servers, &plan);
    now.servers[0].visit_ns = 99_999;
    assert_eq!(ask(&MODEL, &Workload::default(), &now), Outcome::Keep);
    now.paths[1].capacity += 1;
    assert_eq!(planned(&MODEL, &now).ranges, plan.ranges);
}

#[test]
fn extremes_do_not_overflow_and_random_fleets_keep_the_rules() {
    let mut state = 1_u64;
    let mut throw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut seen = [0; 2];
    for _ in 0..20_000 {
        let mut any = |usual: u64| match throw(12) {
            0 => 0,
            1 => u64::MAX,
            _ => throw(usual),
        };
        let blocks = u32::try_from(any(20)).unwrap_or(u32::MAX);
        let [block_bytes, slot_bytes, head_bytes, tail_bytes] = [any(200), any(20), any(300), any(300)];
        let model = Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes };
        let load = Workload { rate_milli: any(1 << 40), ..Workload::default() };
        let mut fleet = fleet(&[any(5000), any(5000), any(5000), any(5000)]);
        fleet.servers[1].visit_ns = any(100);
        fleet.servers[2].block_ns = any(100);
        match ask(&model, &load, &fleet) {
            Outcome::Replace(plan) => {
                seen[0] += 1;
                assert_eq!(ask(&model, &load, &carried_out(fleet, &plan)), Outcome::Keep);
            }
            Outcome::Infeasible(_) => seen[1] += 1,
            // Without blocks on it there is no path.
            Outcome::Keep => panic!("an empty fleet holds no plan"),
        }
    }
    assert!(seen.iter().all(|&count| count > 2000), "{seen:?}");
    assert_eq!(planned(&Model { blocks: 1, ..MODEL }, &self::fleet(&[1000; 600])).paths.len(), 512);
}

#[test]
fn there_are_no_settings() {
    assert!(Harness::<JffcOnly>::new("{\"jobs\": 1}", cluster(&[])).is_err());
}
