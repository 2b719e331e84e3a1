//! Worked examples to the last digit that is known, M/M/c, and the limits.

use super::*;
use crate::place::{Fleet, Hop, Model, Path, Server, ServerId, Workload};

const SECOND: u64 = 1_000_000_000;
const GB: u64 = 1_000_000_000;

const BLOOM: Model =
    Model { blocks: 70, block_bytes: 1_320_000_000, slot_bytes: 110_000_000, head_bytes: 0, tail_bytes: 0 };
const LLAMA: Model =
    Model { blocks: 32, block_bytes: 437_500_000, slot_bytes: 33_600_000, head_bytes: 0, tail_bytes: 0 };

/// Empty ready servers with ids from 1, each (bytes, nanoseconds of a visit, of a block).
fn servers(each: impl IntoIterator<Item = (u64, u64, u64)>) -> Vec<Server> {
    let server = |(id, (mem_bytes, visit_ns, block_ns))| Server {
        id: ServerId(id),
        mem_bytes,
        visit_ns,
        block_ns,
        ..Server::default()
    };
    (1..).zip(each).map(server).collect()
}

/// The ranges as (server, first block, last block), counted from 1 as in the paper.
fn ranges(made: &Composition) -> Vec<(u32, u32, u32)> {
    made.placed.iter().map(|it| (it.server.id.0, it.first_block + 1, it.end())).collect()
}

fn visited(path: &Path) -> Vec<u32> {
    path.hops.iter().map(|hop| hop.server.0).collect()
}

fn close(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 1e-4, "{found}, not {wanted}");
}

/// Compares paths: servers where they are known, capacity, and seconds.
fn check_paths(paths: &[Path], wanted: &[(&[u32], u32, f64)]) {
    assert_eq!(paths.len(), wanted.len(), "{paths:?}");
    for (path, (servers, capacity, seconds)) in paths.iter().zip(wanted) {
        assert!(servers.is_empty() || visited(path) == *servers, "{path:?}");
        assert_eq!(path.capacity, *capacity, "{path:?}");
        close(path.service_ns as f64 / 1e9, *seconds);
    }
}

fn demand(per_s: f64) -> Demand {
    Demand { per_s, load_max: 0.7 }
}

/// The paper's example: five servers, three blocks, and times per block that differ by a little.
fn five() -> (Model, Vec<Server>) {
    let model = Model { blocks: 3, block_bytes: GB, slot_bytes: GB / 10, head_bytes: 0, tail_bytes: 0 };
    let each = [(2, 1), (3, 2), (2, 1), (2, 1), (2, 1)];
    (model, servers((1..).zip(each).map(|(at, (bytes, visit))| (bytes * GB, visit * SECOND, at))))
}

/// Three servers of 40 GB and six of 20.
fn nine() -> Vec<Server> {
    servers((1..=9).map(|at| {
        let (bytes, block_ns) = if at <= 3 { (40, 23_900_000) } else { (20, 46_700_000) };
        (bytes * GB, SECOND + at * SECOND / 100, block_ns)
    }))
}

/// Four servers of 40 GB and 16 of 20.
fn twenty() -> Vec<Server> {
    servers((1..=20).map(|at| {
        let (bytes, block_ns) = if at <= 4 { (40, 108_900_000) } else { (20, 175_200_000) };
        (bytes * GB, 760_000_000 + at * 1_000_000, block_ns)
    }))
}

#[test]
fn v1_the_papers_example() {
    let (model, five) = five();
    let made = gbp_cr(&model, &five, 1, Until::Exhausted);
    assert_eq!(ranges(&made), [(1, 1, 1), (2, 2, 3), (3, 1, 1), (4, 2, 2), (5, 3, 3)]);
    let at = |nanos: u64| u128::from(3 * SECOND + nanos);
    assert_eq!(made.times_ns, [at(5), at(12)]);
    let paths = gca(&model, &made.placed, &mut { STEPS });
    let found: Vec<_> = paths.iter().map(|path| (visited(path), path.capacity, path.service_ns)).collect();
    let at = |nanos: u64| 3 * SECOND + nanos;
    assert_eq!(found, [(vec![1, 2], 5, at(5)), (vec![1, 4, 5], 5, at(10)), (vec![3, 4, 5], 5, at(12))]);
    let plan = plan(&made.placed, paths, 1);
    let slots: Vec<u32> = plan.ranges.iter().map(|range| range.slots).collect();
    assert_eq!(slots, [10, 10, 5, 10, 10]);
}

#[test]
fn v2_blocks_by_reserved_jobs() {
    let held = |model: &Model, jobs| (room(model, 40 * GB, jobs), room(model, 20 * GB, jobs));
    let bloom = [(1, 27, 13), (2, 25, 12), (3, 24, 12), (5, 21, 10), (7, 19, 9), (8, 18, 9), (10, 16, 8), (20, 11, 5)];
    for (jobs, large, small) in bloom.into_iter().chain([(35, 7, 3)]) {
        assert_eq!(held(&BLOOM, jobs), (large, small), "{jobs}");
    }
    let llama = [(1, 32, 32), (3, 32, 32), (7, 32, 29), (10, 32, 25), (20, 32, 18), (35, 24, 12), (50, 18, 9)];
    for (jobs, large, small) in llama {
        assert_eq!(held(&LLAMA, jobs), (large, small), "{jobs}");
    }
}

#[test]
fn v3_llama_on_nine_servers() {
    let nine = nine();
    let stop = compose(&LLAMA, &nine, 35, Variant::Stop, demand(2.57), &mut { STEPS }).unwrap();
    check_paths(&stop.paths, &[(&[1, 2], 36, 2.7948)]);
    let hop = |server, first_block, blocks| Hop { server: ServerId(server), first_block, blocks };
    assert_eq!(stop.paths[0].hops, [hop(1, 0, 24), hop(2, 24, 8)]);
    let made = gbp_cr(&LLAMA, &nine, 35, Until::Rate(demand(2.57).need(35)));
    assert_eq!(ranges(&made), [(1, 1, 24), (2, 9, 32)]);

    let made = gbp_cr(&LLAMA, &nine, 35, Until::Exhausted);
    let more = [(3, 1, 24), (4, 21, 32), (5, 1, 12), (6, 13, 24), (7, 21, 32)];
    assert_eq!(ranges(&made)[2..], more);
    let times: Vec<f64> = made.times_ns.iter().map(|&time| time as f64 / 1e9).collect();
    assert_eq!(times.len(), 3);
    times.iter().zip([3.1772, 3.2040, 4.8612]).for_each(|(&found, wanted)| close(found, wanted));
    let max = compose(&LLAMA, &nine, 35, Variant::Max, demand(2.57), &mut { STEPS }).unwrap();
    let wanted: [(&[u32], u32, f64); 6] = [
        (&[1, 2], 36, 2.7948),
        (&[3, 2], 36, 2.8148),
        (&[5, 2], 15, 3.1084),
        (&[5, 1, 4], 1, 4.3208),
        (&[5, 3, 4], 1, 4.3408),
        (&[5, 6, 4], 19, 4.6444),
    ];
    check_paths(&max.paths, &wanted);
    close(max.per_s, 35.0490);
    let bounds = max.bounds.unwrap();
    close(bounds.seconds_low, 2.7948);
    close(bounds.seconds_high, 4.6417);
}

#[test]
fn v4_bloom_on_twenty_servers() {
    let made = gbp_cr(&BLOOM, &twenty(), 7, Until::Exhausted);
    let times: Vec<f64> = made.times_ns.iter().map(|&time| time as f64 / 1e9).collect();
    assert_eq!(times.len(), 3);
    times.iter().zip([11.3264, 18.7624, 18.8264]).for_each(|(&found, wanted)| close(found, wanted));
    let choice = compose(&BLOOM, &twenty(), 7, Variant::Max, demand(0.2), &mut { STEPS }).unwrap();
    let times = [10.6730, 16.5722, 17.9399, 18.4120, 18.4600, 18.4680, 18.4760];
    let wanted: Vec<(&[u32], u32, f64)> =
        [7, 2, 1, 5, 2, 3, 3].iter().zip(times).map(|(&jobs, time)| (&[][..], jobs, time)).collect();
    check_paths(&choice.paths, &wanted);
    close(choice.per_s, 1.53701);
    let bounds = choice.bounds.unwrap();
    close(bounds.seconds_low, 10.6772);
    close(bounds.seconds_high, 18.4730);
}

#[test]
fn v5_bounds_of_two_pools() {
    let pools = [Pool { per_s: 0.25, jobs: 4 }, Pool { per_s: 1.0, jobs: 2 }];
    let found = bounds(&pools, 2.0).unwrap();
    close(found.seconds_low, 1.713852);
    close(found.seconds_high, 2.839720);
    close(found.jobs_low, 2.0 * 1.713852);
    // Rare requests, and too many.
    assert_eq!(bounds(&pools, 0.0).map(|it| (it.seconds_low, it.seconds_high)), Some((1.0, 4.0)));
    close(bounds(&pools, 1e-9).unwrap().seconds_high, 4.0);
    for rate in [3.0, 4.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(bounds(&pools, rate), None);
    }
    assert_eq!(bounds(&[], 0.0), None);
    assert_eq!(bounds(&[Pool { per_s: 1.0, jobs: 0 }], 0.0), None);
}

/// Erlang's formula for M/M/c: the mean number in the system.
fn erlang(per_s: f64, rate: f64, count: u32) -> f64 {
    let (offered, mut blocked) = (per_s / rate, 1.0);
    for n in 1..=count {
        blocked = offered * blocked / (f64::from(n) + offered * blocked);
    }
    let load = offered / f64::from(count);
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    offered + waits * load / (1.0 - load)
}

#[test]
fn the_bounds_of_one_pool_are_the_queue_of_equal_servers() {
    let same = |per_s: f64, jobs: u32, rate: f64| {
        let found = bounds(&[Pool { per_s, jobs }], rate).unwrap();
        let wanted = erlang(rate, per_s, jobs);
        assert!((found.jobs_low / wanted - 1.0).abs() < 1e-9, "{found:?} {wanted}");
        assert!((found.jobs_high / wanted - 1.0).abs() < 1e-9, "{found:?} {wanted}");
    };
    close(bounds(&[Pool { per_s: 0.5, jobs: 3 }], 1.0).unwrap().seconds_low, 2.8889);
    for (jobs, load) in [(1, 0.5), (3, 0.9), (100, 0.7), (20_000, 0.97), (131_072, 0.999)] {
        same(0.5, jobs, 0.5 * f64::from(jobs) * load);
    }
}

#[test]
fn a_larger_reservation_is_chosen_as_requests_grow() {
    let nine = nine();
    let mut before = 0.0;
    for rate in [0.0, 0.5, 2.57, 10.0, 20.0, 30.0] {
        let best = by_bound(&LLAMA, &nine, Variant::Max, demand(rate), &mut { STEPS }).unwrap();
        let low = best.bounds.unwrap().seconds_low;
        assert!(low >= before, "{rate}: {low} after {before}");
        before = low;
        for jobs in [1, 7, 20, 35, 50] {
            let other = compose(&LLAMA, &nine, jobs, Variant::Max, demand(rate), &mut { STEPS }).unwrap();
            assert!(other.bounds.is_none_or(|it| it.seconds_low >= low), "{jobs} is better than {}", best.jobs);
        }
    }
    // The worked example of 20 servers: few jobs where all chains are formed, more where few chains are.
    let jobs = |variant| by_bound(&BLOOM, &twenty(), variant, demand(0.2), &mut { STEPS }).unwrap().jobs;
    assert_eq!((jobs(Variant::Max), jobs(Variant::Stop)), (3, 8));
    // Beyond what any can serve, whoever serves most.
    let best = by_bound(&LLAMA, &nine, Variant::Max, demand(1e6), &mut { STEPS }).unwrap();
    assert!(best.bounds.is_none() && best.per_s > 35.0, "{best:?}");
}

#[test]
fn the_surrogate_takes_the_fewest_jobs_that_keep_up() {
    let nine = nine();
    assert_eq!(by_surrogate(&LLAMA, &nine, demand(0.0)), Some(1));
    assert_eq!(by_surrogate(&LLAMA, &nine, demand(1e9)), None);
    let jobs = by_surrogate(&LLAMA, &nine, demand(2.57)).unwrap();
    let cost = |jobs| {
        let made = gbp_cr(&LLAMA, &nine, jobs, Until::Rate(demand(2.57).need(jobs)));
        (made.per_s >= demand(2.57).need(jobs)).then(|| jobs as usize * made.times_ns.len())
    };
    assert!((1..=jobs_max(&LLAMA, &nine)).filter_map(cost).all(|other| other >= cost(jobs).unwrap()), "{jobs}");
    // The paper finds that it reserves little: with many jobs' worth of memory, few are reserved for.
    assert!((2..=3).contains(&by_surrogate(&BLOOM, &twenty(), demand(0.2)).unwrap()));
}

#[test]
fn the_ends_of_the_model_stand_where_there_is_room_for_them() {
    let model = Model { blocks: 10, block_bytes: 90, slot_bytes: 10, head_bytes: 500, tail_bytes: 300 };
    // The fastest has no room for the head, the next none for the tail.
    let each = servers([(500, 1, 1), (799, 1, 2), (399, 1, 3), (1000, 1, 4)]);
    let made = gbp_cr(&model, &each, 1, Until::Exhausted);
    assert_eq!(ranges(&made), [(2, 1, 2), (3, 3, 5), (4, 4, 10)]);
    // Both ends on one.
    let made = gbp_cr(&model, &servers([(1799, 1, 1), (1800, 1, 1)]), 1, Until::Exhausted);
    assert_eq!(ranges(&made), [(1, 1, 9), (2, 1, 10)]);
    // Nine blocks and no tail leave the last block to whoever has room for it.
    let made = gbp_cr(&model, &servers([(1500, 1, 1), (399, 1, 9), (400, 1, 9)]), 1, Until::Exhausted);
    assert_eq!(ranges(&made), [(1, 1, 9), (3, 10, 10)]);
    // The fastest would take the head, and then nobody could take the tail.
    let model = Model { head_bytes: 100, tail_bytes: 600, ..model };
    let made = gbp_cr(&model, &servers([(1500, 1, 1), (600, 1, 9)]), 1, Until::Exhausted);
    assert_eq!(ranges(&made), [(2, 1, 5), (1, 2, 10)]);
}

#[test]
fn limits_of_paths_are_kept() {
    // 100 servers of a block each: a path would have 100 hops. With a shortcut over 50 of them it has 51.
    let model = Model { blocks: 100, block_bytes: 100, slot_bytes: 1, head_bytes: 0, tail_bytes: 0 };
    let mut placed: Vec<Placed> = servers([(110, 0, 1); 101])
        .into_iter()
        .zip(0..)
        .map(|(server, first_block)| Placed { server, first_block, blocks: 1 })
        .collect();
    let shortcut = placed.pop().unwrap().server;
    assert!(gca(&model, &placed, &mut { STEPS }).is_empty());
    let server = Server { mem_bytes: 10_000, visit_ns: 1 << 40, ..shortcut };
    placed.push(Placed { server, first_block: 50, blocks: 50 });
    let paths = gca(&model, &placed, &mut { STEPS });
    assert_eq!((paths.len(), paths[0].hops.len(), paths[0].capacity), (1, 51, 10));
    // Without steps nothing is found, and the count stops at 0.
    let mut steps = 100;
    assert!(gca(&model, &placed, &mut steps).is_empty());
    assert_eq!(steps, 0);
    // One block on 600 servers with room for many jobs.
    let model = Model { blocks: 1, slot_bytes: 0, ..model };
    let paths = gca(&model, &gbp_cr(&model, &servers([(110, 0, 1); 600]), 1, Until::Exhausted).placed, &mut { STEPS });
    assert_eq!((paths.len(), paths[0].capacity, paths[511].hops[0].server.0), (512, 256, 512));
}

#[test]
fn a_demand_is_read_from_a_workload() {
    let of = |rate_milli, load_max_milli| Demand::of(&Workload { rate_milli, load_max_milli, ..Workload::default() });
    assert_eq!(of(2570, 700), Demand { per_s: 2.57, load_max: 0.7 });
    assert_eq!((of(0, 0).load_max, of(0, 5000).load_max), (0.7, 1.0));
    assert_eq!(Demand { per_s: 7.0, load_max: 0.5 }.need(2), 7.0);
}

#[test]
fn a_plan_that_is_there_is_known() {
    let (model, mut five) = five();
    let choice = compose(&model, &five, 1, Variant::Max, demand(0.0), &mut { STEPS }).unwrap();
    let plan = plan(&choice.placed, choice.paths, 1);
    let fleet = |servers: &[Server]| Fleet { servers: servers.to_vec(), paths: plan.paths.clone(), ..Fleet::default() };
    assert!(!is_present(&plan, &fleet(&five)));
    for server in &mut five {
        let range = plan.ranges.iter().find(|range| range.server == server.id).unwrap();
        (server.first_block, server.blocks) = (range.first_block, range.blocks);
    }
    assert!(is_present(&plan, &fleet(&five)));
    // (5 + 10 + 12) / 3 nanoseconds beside the three seconds.
    assert_eq!(predict(&plan.paths, demand(0.0)).0, 3 * SECOND + 9);
    assert_eq!(predict(&plan.paths, demand(5.0)).0, 0);
    let at_one = predict(&plan.paths, demand(1.0)).0;
    assert!((3 * SECOND..4 * SECOND).contains(&at_one), "{at_one}");
}

/// The fastest way on from block `next`, by trying all of them.
fn fastest(placed: &[Placed], free: &[u32], next: u32, blocks: u32) -> Option<u128> {
    if next == blocks {
        return Some(0);
    }
    let on = placed
        .iter()
        .zip(free)
        .filter(|(it, free)| it.first_block <= next && next < it.end() && it.end() - next <= **free);
    on.filter_map(|(it, _)| Some(it.visit_ns(it.end() - next) + fastest(placed, free, it.end(), blocks)?)).min()
}

#[test]
fn each_path_is_the_fastest_of_all_and_full() {
    let mut state = 1_u64;
    let mut throw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut found = 0;
    for _ in 0..3_000 {
        let blocks = 1 + throw(8) as u32;
        let model = Model { blocks, block_bytes: 10, slot_bytes: 1, head_bytes: throw(5), tail_bytes: throw(5) };
        let each: Vec<_> = (0..throw(8)).map(|_| (10 + throw(100), throw(20), throw(20))).collect();
        let mut placed = Vec::new();
        for server in servers(each) {
            let first_block = throw(blocks.into()) as u32;
            let range = Placed { server, first_block, blocks: 1 + throw(u64::from(blocks - first_block)) as u32 };
            placed.extend(fits(&model, &range, 0).then_some(range));
        }
        let mut free: Vec<u32> = placed.iter().map(|it| slots(&model, it)).collect();
        for path in gca(&model, &placed, &mut { STEPS }) {
            assert_eq!(Some(path.service_ns.into()), fastest(&placed, &free, 0, blocks), "{path:?} {placed:?}");
            let mut most = u32::MAX;
            for hop in &path.hops {
                let at = placed.iter().position(|it| it.server.id == hop.server).unwrap();
                most = most.min(free[at] / hop.blocks);
                free[at] -= hop.blocks * path.capacity;
            }
            assert_eq!(path.capacity, most);
            found += 1;
        }
        assert_eq!(fastest(&placed, &free, 0, blocks), None, "{placed:?}");
    }
    assert!(found > 1_000, "{found}");
}
