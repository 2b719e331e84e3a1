//! Splits by hand, a plain check of every plan, and numbers at the ends of their ranges.

use super::*;
use pointsman_sdk::testing::{Harness, cluster};
use pointsman_sdk::{Link, ServerId};

/// Ten blocks of 100 bytes and slots of 10.
const MODEL: Model = Model { blocks: 10, block_bytes: 100, slot_bytes: 10, head_bytes: 0, tail_bytes: 0 };

/// Empty ready servers with ids from 0.
fn fleet(mem_bytes: &[u64]) -> Fleet {
    let server =
        |(id, &mem_bytes)| Server { id: ServerId(id), mem_bytes, visit_ns: 1000, block_ns: 10, ..Server::default() };
    Fleet { epoch: 1, servers: (0..).zip(mem_bytes).map(server).collect(), ..Fleet::default() }
}

fn ask(config: &str, model: &Model, fleet: &Fleet) -> Outcome {
    let mut policy = Harness::<Even>::new(config, cluster(&[])).unwrap();
    let outcome = policy.propose(model, &Workload::default(), fleet).unwrap();
    if let Outcome::Replace(plan) = &outcome {
        assert_eq!(wrong(model, fleet, plan), None, "{plan:?}");
    }
    outcome
}

fn planned(config: &str, model: &Model, fleet: &Fleet) -> Placement {
    match ask(config, model, fleet) {
        Outcome::Replace(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn infeasible(config: &str, model: &Model, fleet: &Fleet) -> String {
    match ask(config, model, fleet) {
        Outcome::Infeasible(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Each path as its capacity and the (server, blocks) of its hops.
fn shape(plan: &Placement) -> Vec<(u32, Vec<(u32, u32)>)> {
    let hops = |path: &Path| path.hops.iter().map(|hop| (hop.server.0, hop.blocks)).collect();
    plan.paths.iter().map(|path| (path.capacity, hops(path))).collect()
}

/// The host's rules, and this policy's own: a path for each group, and nobody in two.
fn wrong(model: &Model, fleet: &Fleet, plan: &Placement) -> Option<String> {
    let mut ranges = plan.ranges.iter();
    if plan.paths.is_empty() || plan.paths.len() > 512 || plan.reserved_jobs == 0 {
        return Some("counts".to_owned());
    }
    for path in &plan.paths {
        let mut next = 0;
        for hop in &path.hops {
            let Some(range) = ranges.next().filter(|range| range.server == hop.server) else {
                return Some("order".into());
            };
            let Some(server) = fleet.servers.iter().find(|it| it.id == hop.server) else {
                return Some("unknown".into());
            };
            let bytes = u128::from(hop.blocks) * u128::from(model.block_bytes)
                + u128::from(range.slots) * u128::from(model.slot_bytes)
                + if next == 0 { u128::from(model.head_bytes) } else { 0 }
                + if next + u64::from(hop.blocks) == u64::from(model.blocks) { model.tail_bytes.into() } else { 0 };
            let same = (range.first_block, range.blocks) == (hop.first_block, hop.blocks);
            let slots = u64::from(path.capacity) * u64::from(hop.blocks) == u64::from(range.slots);
            let fits = bytes <= u128::from(server.mem_bytes) && server.state == Health::Ready;
            if !same || !slots || !fits || u64::from(hop.first_block) != next || hop.blocks == 0 {
                return Some(format!("{hop:?} {range:?} {bytes}"));
            }
            next += u64::from(hop.blocks);
        }
        let capacity = (plan.reserved_jobs..=256).contains(&path.capacity);
        if next != u64::from(model.blocks) || path.hops.len() > 64 || !capacity {
            return Some(format!("{path:?}"));
        }
    }
    let in_order = plan.ranges.windows(2).all(|pair| pair[0].server < pair[1].server);
    (ranges.next().is_some() || !in_order).then(|| "ranges".to_owned())
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
fn a_server_that_holds_the_model_is_a_group_alone() {
    // 10 x (100 + 8 x 10) = 1800; with 10 bytes for a slot, 100 more are one job more.
    let plan = planned("", &MODEL, &fleet(&[1800, 1899, 1900, 1_000_000]));
    let alone = |server, capacity| (capacity, vec![(server, 10)]);
    assert_eq!(shape(&plan), [alone(0, 8), alone(1, 8), alone(2, 9), alone(3, 256)]);
    assert_eq!(plan.reserved_jobs, 8);
    let slots: Vec<u32> = plan.ranges.iter().map(|range| range.slots).collect();
    assert_eq!(slots, [80, 80, 90, 2560]);
}

#[test]
fn equal_servers_hold_equal_counts_or_one_more() {
    // Each has room for four blocks with eight jobs: three are needed, and the fourth is over.
    let plan = planned("", &MODEL, &fleet(&[720; 4]));
    assert_eq!(shape(&plan), [(8, vec![(0, 4), (1, 3), (2, 3)])]);
    // Seven make two groups.
    let plan = planned("", &MODEL, &fleet(&[750; 7]));
    assert_eq!(shape(&plan), [(8, vec![(0, 4), (1, 3), (2, 3)]), (8, vec![(3, 4), (4, 3), (5, 3)])]);
    let slots: Vec<u32> = plan.ranges.iter().map(|range| range.slots).collect();
    assert_eq!(slots, [32, 24, 24, 32, 24, 24]);
    assert_eq!(plan.ranges[4].first_block, 4);
}

#[test]
fn a_small_server_holds_what_it_can_and_the_others_share_the_rest() {
    // The third can hold two blocks only, not its share of three; the first is not needed.
    let rooms = [2, 5, 2, 5].map(|blocks| blocks * 180);
    assert_eq!(shape(&planned("", &MODEL, &fleet(&rooms))), [(8, vec![(1, 4), (2, 2), (3, 4)])]);
    assert_eq!(even(&[2, 9, 2, 9], 10), [2, 3, 2, 3]);
    assert_eq!(even(&[2, 9, 1, 9], 10), [2, 4, 1, 3]);
    assert_eq!(even(&[1, 1, 1, 7], 10), [1, 1, 1, 7]);
    assert_eq!(even(&[10, 10, 10], 10), [4, 3, 3]);
    assert_eq!(even(&[1, 1], 2), [1, 1]);
    assert_eq!(even(&[5], 5), [5]);
    assert_eq!(even(&[u32::MAX; 2], u32::MAX), [1 << 31, (1 << 31) - 1]);
}

#[test]
fn the_first_complete_run_and_its_shortest_end_are_taken() {
    // Server 1 alone is complete before anything with server 0 is, and server 0 would only make it longer.
    let plan = planned("", &MODEL, &fleet(&[360, 1800, 900, 900, 180]));
    assert_eq!(shape(&plan), [(8, vec![(1, 10)]), (8, vec![(2, 5), (3, 5)])]);
}

#[test]
fn the_ends_of_the_model_need_their_place() {
    let model = Model { head_bytes: 500, tail_bytes: 300, ..MODEL };
    // Five blocks and the head, five and the tail.
    let plan = planned("", &model, &fleet(&[1400, 1200]));
    assert_eq!(shape(&plan), [(8, vec![(0, 5), (1, 5)])]);
    // With less the first server holds fewer.
    let plan = planned("", &model, &fleet(&[1399, 1380]));
    assert_eq!(shape(&plan), [(8, vec![(0, 4), (1, 6)])]);
    // A server without room for the head stands in the middle only, one without room for the tail is not the last.
    let plan = planned("", &model, &fleet(&[600, 1400, 400, 1200]));
    assert_eq!(shape(&plan), [(10, vec![(1, 4), (2, 2), (3, 4)])]);
    // Alone a server needs both.
    assert_eq!(shape(&planned("", &model, &fleet(&[2600]))), [(8, vec![(0, 10)])]);
    assert_eq!(planned("", &model, &fleet(&[2599])).reserved_jobs, 7);
    let whole = Model { head_bytes: u64::MAX, tail_bytes: u64::MAX, ..MODEL };
    infeasible("", &whole, &fleet(&[u64::MAX; 3]));
}

#[test]
fn fewer_jobs_are_reserved_where_so_many_do_not_fit() {
    assert_eq!(planned("", &MODEL, &fleet(&[1750])).reserved_jobs, 7);
    let plan = planned("", &MODEL, &fleet(&[1100]));
    assert_eq!((plan.reserved_jobs, shape(&plan)), (1, vec![(1, vec![(0, 10)])]));
    assert_eq!(
        infeasible("", &MODEL, &fleet(&[1099])),
        "no group of neighbours holds 10 blocks of 100 bytes with 10 for one job's keys and values, 0 beside the first \
         and 0 beside the last: 1 ready servers of 1099 bytes hold 9 such blocks, and a path has 64 servers at most"
    );
    // More jobs take more servers, fewer take fewer.
    let servers = fleet(&[1300; 4]);
    assert_eq!(planned("{\"jobs\": 8}", &MODEL, &servers).paths.len(), 2);
    assert_eq!(planned("{\"jobs\": 3}", &MODEL, &servers).paths.len(), 4);
    // With 34 each holds two blocks only.
    assert_eq!(planned("{\"jobs\": 256}", &MODEL, &servers).reserved_jobs, 33);
}

#[test]
fn only_ready_servers_are_planned_with() {
    let mut servers = fleet(&[1800, 1800, 1800]);
    servers.servers[0].state = Health::Draining;
    servers.servers[1].state = Health::Gone;
    assert_eq!(shape(&planned("", &MODEL, &servers)), [(8, vec![(2, 10)])]);
    servers.servers[2].state = Health::Gone;
    assert_eq!(infeasible("", &MODEL, &servers), "none of 3 servers is ready");
    assert_eq!(infeasible("", &MODEL, &fleet(&[])), "none of 0 servers is ready");
    assert_eq!(infeasible("", &Model { blocks: 0, ..MODEL }, &fleet(&[1800])), "the model has no blocks");
}

#[test]
fn what_is_there_already_is_kept() {
    let servers = fleet(&[1800, 720, 720, 720, 100]);
    let plan = planned("", &MODEL, &servers);
    let mut now = carried_out(servers, &plan);
    assert_eq!(ask("", &MODEL, &now), Outcome::Keep);
    // Times that are measured anew and links change nothing.
    now.servers[0].visit_ns += 1;
    now.links.push(Link { src: ServerId(0), dst: ServerId(1), rtt: 1, mbytes_per_s: 1 });
    // One that is to hold nothing has no first block.
    now.servers[4].first_block = 3;
    assert_eq!(ask("", &MODEL, &now), Outcome::Keep);
    type Change = fn(&mut Fleet);
    let changes: [Change; 6] = [
        |fleet| fleet.servers[2].blocks = 2,
        |fleet| fleet.servers[2].first_block = 5,
        |fleet| fleet.servers[4].blocks = 1,
        |fleet| fleet.paths[0].capacity = 7,
        |fleet| fleet.paths[1].hops[0].blocks = 3,
        |fleet| fleet.paths.truncate(1),
    ];
    for change in changes {
        let mut fleet = now.clone();
        change(&mut fleet);
        let Outcome::Replace(other) = ask("", &MODEL, &fleet) else { panic!("{fleet:?}") };
        assert_eq!((&other.ranges, shape(&other)), (&plan.ranges, shape(&plan)));
    }
    // What a server that leaves still holds is not looked at.
    let mut leaving = now.clone();
    leaving.servers[4] = Server { state: Health::Draining, blocks: 5, ..leaving.servers[4] };
    assert_eq!(ask("", &MODEL, &leaving), Outcome::Keep);
    leaving.servers[0].state = Health::Draining;
    assert_eq!(shape(&planned("", &MODEL, &leaving)), [(8, vec![(1, 4), (2, 3), (3, 3)])]);
}

#[test]
fn the_predicted_time_is_the_paths_mean_by_jobs() {
    // 1000 + 10 x 10 for 16 jobs, 3000 + 10 x 10 for 8.
    let plan = planned("", &MODEL, &fleet(&[2600, 720, 720, 720]));
    let times: Vec<_> = plan.paths.iter().map(|path| (path.capacity, path.service_ns)).collect();
    assert_eq!(times, [(16, 1100), (8, 3100)]);
    assert_eq!(plan.predicted_ns, (16 * 1100 + 8 * 3100) / 24);
    assert_eq!(
        plan.note,
        "even split: 2 paths over 4 of 4 ready servers for 24 jobs, at least 8 a path; the predicted time has no \
         waiting in it"
    );
}

#[test]
fn the_model_of_the_paper() {
    // BLOOM on four servers of 40 GB and sixteen of 20 GB: with eight jobs they hold 18 and 9 blocks.
    let model = Model { blocks: 70, block_bytes: 1_320_000_000, slot_bytes: 110_000_000, head_bytes: 0, tail_bytes: 0 };
    let mut memory = vec![40_000_000_000; 4];
    memory.extend([20_000_000_000; 16]);
    let plan = planned("", &model, &fleet(&memory));
    assert_eq!(plan.paths.iter().map(|path| path.hops.len()).collect::<Vec<_>>(), [4, 8, 8]);
    assert_eq!(plan.paths[1].hops.iter().map(|hop| hop.blocks).collect::<Vec<_>>(), [9, 9, 9, 9, 9, 9, 8, 8]);
}

#[test]
fn a_path_has_no_more_servers_than_the_host_allows() {
    let model = Model { blocks: 65, ..MODEL };
    let why = infeasible("", &model, &fleet(&[110; 100]));
    assert!(
        why.ends_with("100 ready servers of 11000 bytes hold 100 such blocks, and a path has 64 servers at most"),
        "{why}"
    );
    let mut memory = [110; 100];
    memory[80] = 220;
    let plan = planned("", &model, &fleet(&memory));
    assert_eq!((plan.paths.len(), plan.paths[0].hops.len(), plan.paths[0].hops[0].server), (1, 64, ServerId(17)));
    // A plan has no more paths.
    let plan = planned("", &Model { blocks: 1, ..MODEL }, &fleet(&[110; 600]));
    assert_eq!(plan.paths.len(), 512);
}

#[test]
fn extremes_do_not_overflow() {
    let (low, high) = ([0, 1, 2, 70], [u32::MAX - 1, u32::MAX]);
    let bytes = [0, 1, 1 << 32, u64::MAX];
    for blocks in low.into_iter().chain(high) {
        for (block_bytes, slot_bytes) in bytes.iter().flat_map(|&one| bytes.map(|other| (one, other))) {
            for (head_bytes, tail_bytes) in [(0, 0), (u64::MAX, 0), (1, u64::MAX)] {
                let model = Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes };
                for config in ["{\"jobs\":1}", "", "{\"jobs\":256}"] {
                    let mut fleet = fleet(&[u64::MAX, 0, 1, u64::MAX, 1 << 40, u64::MAX]);
                    fleet.servers[0].visit_ns = u64::MAX;
                    fleet.servers[3].block_ns = u64::MAX;
                    if let Outcome::Replace(plan) = ask(config, &model, &fleet) {
                        assert_eq!(ask(config, &model, &carried_out(fleet, &plan)), Outcome::Keep);
                    }
                }
            }
        }
    }
    // Slots are counted in 32 bits, so a huge model of nothing is split for the jobs' sake.
    let model = Model { blocks: u32::MAX, block_bytes: 0, slot_bytes: 0, head_bytes: 0, tail_bytes: 0 };
    assert_eq!(shape(&planned("{\"jobs\":1}", &model, &fleet(&[0]))), [(1, vec![(0, u32::MAX)])]);
    assert_eq!(planned("{\"jobs\":2}", &model, &fleet(&[0; 3])).paths[0].hops.len(), 3);
}

#[test]
fn random_fleets_are_planned_within_the_rules() {
    let mut state = 1_u64;
    let mut throw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut seen = [0; 3];
    for _ in 0..20_000 {
        let memory: Vec<u64> = (0..throw(9)).map(|_| throw(1500)).collect();
        let mut fleet = fleet(&memory);
        for server in &mut fleet.servers {
            server.state = if throw(8) == 0 { Health::Draining } else { Health::Ready };
        }
        let (blocks, head_bytes, tail_bytes) = (throw(20) as u32, throw(300), throw(300));
        let model = Model { blocks, head_bytes, tail_bytes, ..MODEL };
        match ask("", &model, &fleet) {
            Outcome::Replace(plan) => {
                seen[0] += 1;
                assert_eq!(ask("", &model, &carried_out(fleet, &plan)), Outcome::Keep);
            }
            Outcome::Infeasible(_) => seen[1] += 1,
            Outcome::Keep => seen[2] += 1,
        }
    }
    assert!(seen[0] > 2000 && seen[1] > 2000 && seen[2] == 0, "{seen:?}");
}

#[test]
fn the_number_of_jobs_is_the_only_setting() {
    let refused = |config| Harness::<Even>::new(config, cluster(&[])).map(|_| ()).unwrap_err();
    for config in ["{\"jobs\": 0}", "{\"jobs\": 257}", "{\"jobs\": true}", "{\"job\": 1}"] {
        assert!(matches!(refused(config), InitError::BadConfig(_)), "{config}");
    }
    assert_eq!(Even::init("{\"jobs\": 256}", &cluster(&[])).unwrap().dump(), "{\"jobs\":256}");
    assert_eq!(Even::init("", &cluster(&[])).unwrap().dump(), "{\"jobs\":8}");
}
