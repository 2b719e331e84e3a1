//! The paper's example through the policy, a plain check of every plan, and numbers at the ends of their ranges.

use super::*;
use pointsman_sdk::testing::{Harness, cluster};
use pointsman_sdk::{Path, ServerId};

const GB: u64 = 1_000_000_000;
const LLAMA: Model =
    Model { blocks: 32, block_bytes: 437_500_000, slot_bytes: 33_600_000, head_bytes: 0, tail_bytes: 0 };
/// 2.57 requests a second.
const LOAD: Workload = Workload { rate_milli: 2570, load_max_milli: 700, ..NO_LOAD };
const NO_LOAD: Workload = Workload {
    rate_milli: 0,
    prompt_p50: 0,
    prompt_p95: 0,
    output_p50: 0,
    output_p95: 0,
    load_max_milli: 0,
    ttft_slo: 0,
    tpot_slo: 0,
};

/// Empty ready servers with ids from 1, each (bytes, nanoseconds of a visit, of a block).
fn fleet(each: impl IntoIterator<Item = (u64, u64, u64)>) -> Fleet {
    let server = |(id, (mem_bytes, visit_ns, block_ns))| Server {
        id: ServerId(id),
        mem_bytes,
        visit_ns,
        block_ns,
        ..Server::default()
    };
    Fleet { epoch: 1, servers: (1..).zip(each).map(server).collect(), ..Fleet::default() }
}

/// The paper's five servers for three blocks.
fn five() -> (Model, Fleet) {
    let model = Model { blocks: 3, block_bytes: GB, slot_bytes: GB / 10, head_bytes: 0, tail_bytes: 0 };
    (model, fleet([(2 * GB, GB, 1), (3 * GB, 2 * GB, 2), (2 * GB, GB, 3), (2 * GB, GB, 4), (2 * GB, GB, 5)]))
}

/// Three servers of 40 GB and six of 20.
fn nine() -> Fleet {
    fleet((1..=9).map(|at| {
        let (bytes, block_ns) = if at <= 3 { (40, 23_900_000) } else { (20, 46_700_000) };
        (bytes * GB, GB + at * GB / 100, block_ns)
    }))
}

fn ask(config: &str, model: &Model, load: &Workload, fleet: &Fleet) -> Outcome {
    let outcome = Harness::<GbpCr>::new(config, cluster(&[])).unwrap().propose(model, load, fleet).unwrap();
    if let Outcome::Replace(plan) = &outcome {
        assert_eq!(wrong(model, fleet, plan), None, "{plan:?}");
    }
    outcome
}

fn planned(config: &str, model: &Model, load: &Workload, fleet: &Fleet) -> Placement {
    match ask(config, model, load, fleet) {
        Outcome::Replace(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn infeasible(model: &Model, fleet: &Fleet) -> String {
    match ask("", model, &LOAD, fleet) {
        Outcome::Infeasible(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Each path as its servers, capacity and time.
fn shape(plan: &Placement) -> Vec<(Vec<u32>, u32, u64)> {
    let servers = |path: &Path| path.hops.iter().map(|hop| hop.server.0).collect();
    plan.paths.iter().map(|path| (servers(path), path.capacity, path.service_ns)).collect()
}

/// The host's rules, and this policy's own: hops to the ends of ranges, times in order and right, slots that are used.
fn wrong(model: &Model, fleet: &Fleet, plan: &Placement) -> Option<String> {
    if plan.paths.is_empty() || plan.paths.len() > 512 || plan.reserved_jobs == 0 || model.blocks == 0 {
        return Some("counts".to_owned());
    }
    for range in &plan.ranges {
        let server = fleet.servers.iter().find(|it| it.id == range.server && it.state == Health::Ready);
        let (wide, end) = (u128::from, u64::from(range.first_block) + u64::from(range.blocks));
        let bytes = u128::from(range.blocks) * wide(model.block_bytes)
            + u128::from(range.slots) * wide(model.slot_bytes)
            + if range.first_block == 0 { wide(model.head_bytes) } else { 0 }
            + if end == u64::from(model.blocks) { wide(model.tail_bytes) } else { 0 };
        let fits = server.is_some_and(|it| bytes <= wide(it.mem_bytes));
        if !fits || range.blocks == 0 || end > u64::from(model.blocks) {
            return Some(format!("{range:?} {bytes}"));
        }
        let hops = plan.paths.iter().flat_map(|path| path.hops.iter().map(|hop| (hop, path.capacity)));
        let here = hops.filter(|(hop, _)| hop.server == range.server);
        let needed: u64 = here.map(|(hop, jobs)| u64::from(hop.blocks) * u64::from(jobs)).sum();
        if needed != u64::from(range.slots) {
            return Some(format!("{range:?} {needed}"));
        }
    }
    for path in &plan.paths {
        let (mut next, mut time) = (0, 0);
        for hop in &path.hops {
            let range = plan.ranges.iter().find(|range| range.server == hop.server)?;
            let server = fleet.servers.iter().find(|it| it.id == hop.server)?;
            let end = hop.first_block + hop.blocks;
            let inside = range.first_block <= next && end == range.first_block + range.blocks;
            if hop.first_block != next || hop.blocks == 0 || !inside {
                return Some(format!("{hop:?} {range:?}"));
            }
            time += u128::from(server.visit_ns) + u128::from(server.block_ns) * u128::from(hop.blocks);
            next = end;
        }
        let counts = (1..=64).contains(&path.hops.len()) && (1..=256).contains(&path.capacity);
        if next != model.blocks || !counts || u128::from(path.service_ns) != time.min(u64::MAX.into()) {
            return Some(format!("{path:?} {next} {time}"));
        }
    }
    let ranges = plan.ranges.windows(2).all(|pair| pair[0].server < pair[1].server);
    let paths = plan.paths.windows(2).all(|pair| pair[0].service_ns <= pair[1].service_ns);
    let hops = |path: &Path| path.hops.iter().all(|hop| plan.ranges.iter().any(|range| range.server == hop.server));
    (!ranges || !paths || !plan.paths.iter().all(hops)).then(|| "order".to_owned())
}

/// The fleet after this plan was carried out.
fn carried_out(mut fleet: Fleet, plan: &Placement) -> Fleet {
    for server in &mut fleet.servers {
        let range = plan.ranges.iter().find(|range| range.server == server.id);
        (server.first_block, server.blocks) = range.map_or((0, 0), |range| (range.first_block, range.blocks));
    }
    fleet.paths = plan.paths.clone();
    fleet
}

#[test]
fn the_papers_example_comes_out() {
    let (model, five) = five();
    let wanted = [(vec![1, 2], 5, 3 * GB + 5), (vec![1, 4, 5], 5, 3 * GB + 10), (vec![3, 4, 5], 5, 3 * GB + 12)];
    for config in ["", "{\"jobs\": 1}", "{\"variant\": \"max\", \"reserve\": \"surrogate\"}"] {
        let plan = planned(config, &model, &NO_LOAD, &five);
        assert_eq!(shape(&plan), wanted, "{config}");
        let ranges: Vec<_> = plan.ranges.iter().map(|it| (it.first_block, it.blocks, it.slots)).collect();
        assert_eq!(ranges, [(0, 1, 10), (1, 2, 10), (0, 1, 5), (1, 1, 10), (2, 1, 10)]);
        assert_eq!((plan.reserved_jobs, plan.predicted_ns), (1, 3 * GB + 9));
        assert!(plan.note.contains("no rate is known"), "{}", plan.note);
    }
    // One chain is enough for nobody; the second server could take ten jobs, the first ten blocks' keys and values.
    let plan = planned("{\"variant\": \"stop\"}", &model, &NO_LOAD, &five);
    assert_eq!((shape(&plan), plan.ranges.len()), (vec![(vec![1, 2], 5, 3 * GB + 5)], 2));
}

#[test]
fn nine_servers_as_in_the_worked_example() {
    let plan = planned("{\"jobs\": 35, \"variant\": \"stop\"}", &LLAMA, &LOAD, &nine());
    assert_eq!(shape(&plan), [(vec![1, 2], 36, 2_794_800_000)]);
    let plan = planned("{\"jobs\": 35}", &LLAMA, &LOAD, &nine());
    let wanted = [
        (vec![1, 2], 36, 2_794_800_000),
        (vec![3, 2], 36, 2_814_800_000),
        (vec![5, 2], 15, 3_108_400_000),
        (vec![5, 1, 4], 1, 4_320_800_000),
        (vec![5, 3, 4], 1, 4_340_800_000),
        (vec![5, 6, 4], 19, 4_644_400_000),
    ];
    assert_eq!(shape(&plan), wanted);
    // The seventh would hold blocks that no path comes to.
    assert_eq!((plan.ranges.len(), plan.reserved_jobs), (6, 35));
    assert!((2_794_700_000..2_794_900_000).contains(&plan.predicted_ns), "{}", plan.predicted_ns);
    assert!(plan.note.contains("at 2.570 requests/s, its upper one is 4.642 s"), "{}", plan.note);
}

#[test]
fn the_bound_is_the_least_of_all_reservations() {
    // Nine servers that hold the whole model: the least bound is without hops, as long as the paths keep up.
    let best = planned("", &LLAMA, &LOAD, &nine());
    assert_eq!((best.paths.len(), best.paths[0].hops.len()), (9, 1));
    for jobs in [2, 7, 10, 20, 35, 50] {
        let other = planned(&format!("{{\"jobs\": {jobs}}}"), &LLAMA, &LOAD, &nine());
        assert!(other.predicted_ns >= best.predicted_ns, "{jobs}");
    }
    let busy = Workload { rate_milli: u64::MAX, ..LOAD };
    for config in ["", "{\"reserve\": \"surrogate\"}", "{\"variant\": \"stop\"}"] {
        let plan = planned(config, &LLAMA, &busy, &nine());
        assert!(plan.predicted_ns == 0 && plan.note.contains("does not keep up"), "{}", plan.note);
    }
}

#[test]
fn fewer_jobs_are_reserved_where_so_many_do_not_fit() {
    let (model, five) = five();
    assert_eq!(planned("{\"jobs\": 256}", &model, &LOAD, &five).reserved_jobs, 10);
    let (model, nine) = (LLAMA, nine());
    let whole = Model { blocks: 100, ..model };
    assert!(planned("{\"jobs\": 256}", &whole, &LOAD, &nine).reserved_jobs < 256);
}

#[test]
fn only_ready_servers_are_planned_with() {
    let (model, mut five) = five();
    five.servers[0].state = Health::Draining;
    assert_eq!(shape(&planned("", &model, &NO_LOAD, &five))[0].0, [2, 3]);
    five.servers[1].state = Health::Gone;
    assert_eq!(shape(&planned("", &model, &NO_LOAD, &five))[0].0, [3, 4, 5]);
    five.servers[2].state = Health::Gone;
    assert_eq!(
        infeasible(&model, &five),
        "no chain of servers holds 3 blocks of 1000000000 bytes with 100000000 for one job's keys and \
         values, 0 beside the first and 0 beside the last: 2 ready servers of 4000000000 bytes hold 2 such blocks, \
         and a path has 64 servers at most"
    );
    five.servers.truncate(3);
    assert_eq!(infeasible(&model, &five), "none of 3 servers is ready");
    assert_eq!(infeasible(&model, &fleet([])), "none of 0 servers is ready");
    assert_eq!(infeasible(&Model { blocks: 0, ..model }, &nine()), "the model has no blocks");
}

#[test]
fn what_is_there_already_is_kept() {
    let plan = planned("", &LLAMA, &LOAD, &nine());
    let mut now = carried_out(nine(), &plan);
    assert_eq!(ask("", &LLAMA, &LOAD, &now), Outcome::Keep);
    // Times are measured anew, and the order of paths is nobody's business.
    now.servers[0].visit_ns += 1;
    now.paths.swap(0, 2);
    assert_eq!(ask("", &LLAMA, &LOAD, &now), Outcome::Keep);
    let mut other = now.clone();
    other.servers[2].blocks -= 1;
    assert!(matches!(ask("", &LLAMA, &LOAD, &other), Outcome::Replace(_)));
    let mut other = now.clone();
    other.paths[1].capacity += 1;
    assert!(matches!(ask("", &LLAMA, &LOAD, &other), Outcome::Replace(_)));
    // What a server that leaves still holds is not looked at, but its paths are.
    now.servers.push(Server { id: ServerId(99), state: Health::Draining, blocks: 3, ..Server::default() });
    assert_eq!(ask("", &LLAMA, &LOAD, &now), Outcome::Keep);
    now.servers[0].state = Health::Draining;
    assert!(matches!(ask("", &LLAMA, &LOAD, &now), Outcome::Replace(_)));
}

#[test]
fn extremes_do_not_overflow() {
    let bytes = [0, 1, 1 << 32, u64::MAX];
    let loads = [NO_LOAD, LOAD, Workload { rate_milli: u64::MAX, load_max_milli: u32::MAX, ..NO_LOAD }];
    for blocks in [0, 1, 2, 70, u32::MAX - 1, u32::MAX] {
        for (block_bytes, slot_bytes) in bytes.iter().flat_map(|&one| bytes.map(|other| (one, other))) {
            for (head_bytes, tail_bytes) in [(0, 0), (u64::MAX, 0), (1, u64::MAX)] {
                let model = Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes };
                for (config, load) in ["", "{\"jobs\":256,\"variant\":\"stop\"}", "{\"jobs\":1}"].iter().zip(&loads) {
                    let most = u64::MAX;
                    let times = [(most, most, 1), (0, 1, 1), (1, 0, 0), (most, 1, most), (1 << 40, 9, 9), (most, 5, 5)];
                    let fleet = fleet(times);
                    if let Outcome::Replace(plan) = ask(config, &model, load, &fleet) {
                        assert_eq!(ask(config, &model, load, &carried_out(fleet, &plan)), Outcome::Keep);
                    }
                }
            }
        }
    }
}

#[test]
fn random_fleets_are_planned_within_the_rules() {
    let mut state = 1_u64;
    let mut throw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let configs = ["", "", "{\"variant\":\"stop\"}", "{\"reserve\":\"surrogate\"}", "{\"jobs\":5}"];
    let mut seen = [0; 2];
    for _ in 0..20_000 {
        let each: Vec<_> = (0..throw(12)).map(|_| (throw(1500), throw(1000), throw(100))).collect();
        let mut fleet = fleet(each);
        for server in &mut fleet.servers {
            server.state = if throw(8) == 0 { Health::Draining } else { Health::Ready };
        }
        let (head_bytes, tail_bytes) = (throw(300), throw(300));
        let model = Model { blocks: throw(20) as u32, block_bytes: 100, slot_bytes: 10, head_bytes, tail_bytes };
        let load = Workload { rate_milli: throw(4) << throw(40), ..LOAD };
        let config = configs[throw(5) as usize];
        match ask(config, &model, &load, &fleet) {
            Outcome::Replace(plan) => {
                seen[0] += 1;
                assert_eq!(ask(config, &model, &load, &carried_out(fleet, &plan)), Outcome::Keep);
            }
            Outcome::Infeasible(_) => {
                seen[1] += 1;
                assert!(!fits_in_some_order(&model, &fleet), "{model:?} {fleet:?}");
            }
            Outcome::Keep => panic!("an empty fleet holds no plan"),
        }
    }
    assert!(seen[0] > 2000 && seen[1] > 2000, "{seen:?}");
}

/// Whether one job's chain exists at all, in whatever order.
fn fits_in_some_order(model: &Model, fleet: &Fleet) -> bool {
    let ready: Vec<u64> =
        fleet.servers.iter().filter(|it| it.state == Health::Ready).map(|server| server.mem_bytes).collect();
    let room = |bytes: u64, beside: u64| bytes.saturating_sub(beside) / (model.block_bytes + model.slot_bytes);
    let blocks = u64::from(model.blocks);
    let sum: u64 = ready.iter().map(|&bytes| room(bytes, 0)).sum();
    let (head, tail) = (model.head_bytes, model.tail_bytes);
    blocks > 0
        && (0..ready.len()).any(|one| {
            let (first, alone) = (room(ready[one], head), room(ready[one], head + tail));
            let with = |other: usize| {
                let last = room(ready[other], tail);
                let between = sum.saturating_sub(room(ready[one], 0) + room(ready[other], 0));
                blocks > 1 && one != other && first > 0 && last > 0 && first + last + between >= blocks
            };
            alone >= blocks || (0..ready.len()).any(with)
        })
}

#[test]
fn settings_are_read_strictly() {
    let refused = |config| Harness::<GbpCr>::new(config, cluster(&[])).map(|_| ()).unwrap_err();
    let wrong =
        ["{\"jobs\": 257}", "{\"jobs\": \"max\"}", "{\"variant\": \"min\"}", "{\"reserve\": 1}", "{\"job\": 1}"];
    for config in wrong {
        assert!(matches!(refused(config), InitError::BadConfig(_)), "{config}");
    }
    let dump = |config| GbpCr::init(config, &cluster(&[])).unwrap().dump();
    assert_eq!(dump(""), "{\"variant\":\"max\",\"reserve\":\"bound\",\"jobs\":0}");
    let all = "{\"variant\": \"stop\", \"reserve\": \"surrogate\", \"jobs\": 35}";
    assert_eq!(dump(all), "{\"variant\":\"stop\",\"reserve\":\"jobs\",\"jobs\":35}");
    assert_eq!(dump("{\"reserve\":\"surrogate\"}"), "{\"variant\":\"max\",\"reserve\":\"surrogate\",\"jobs\":0}");
}

#[test]
fn a_fleet_for_which_the_steps_do_not_suffice_is_planned_all_the_same() {
    let model = Model { blocks: 80, block_bytes: 100, slot_bytes: 5, head_bytes: 50, tail_bytes: 50 };
    let each = |at: u64| (800 + at * 7919 % 2200, 1 + at * 104_729 % 1000, 1 + at * 1_299_709 % 1000);
    let fleet = fleet((0..512).map(each));
    let plan = planned("", &model, &LOAD, &fleet);
    assert!(plan.paths.len() > 64 && plan.predicted_ns > 0, "{}", plan.note);
    assert_eq!(plan, planned("", &model, &LOAD, &fleet));
    // More than the last number of jobs that is tried when they are gone through in order.
    let busy = Workload { rate_milli: 1 << 60, ..LOAD };
    assert!(planned("", &model, &busy, &fleet).reserved_jobs > 16);
}
