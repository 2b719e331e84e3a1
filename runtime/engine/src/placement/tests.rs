//! One plan that is right, each way of spoiling it, and the rule that is then named.

use super::*;

fn server(id: u32, state: Health, mem_bytes: u64) -> Server {
    Server { id: ServerId(id), state, mem_bytes, visit_ns: 1, block_ns: 1, first_block: 0, blocks: 0 }
}

/// Hops are (server, first block, blocks).
fn path(capacity: u32, hops: &[(u32, u32, u32)]) -> Path {
    let hop = |&(server, first_block, blocks)| Hop { server: ServerId(server), first_block, blocks };
    Path { hops: hops.iter().map(hop).collect(), capacity, service_ns: 0 }
}

/// Ready servers as (id, time of a visit, time of a block).
fn speeds(servers: &[(u32, u64, u64)]) -> Fleet {
    let server = |&(id, visit_ns, block_ns)| Server { visit_ns, block_ns, ..server(id, Health::Ready, 0) };
    Fleet { servers: servers.iter().map(server).collect(), ..Fleet::default() }
}

/// Ten blocks of 100 bytes and slots of 10, on servers 1, 4 and 9. Server 5 is draining, 6 gone, 7 ready and empty.
fn good() -> (Model, Fleet, Plan) {
    let model = Model { blocks: 10, block_bytes: 100, slot_bytes: 10, head_bytes: 7, tail_bytes: 3 };
    // Each has exactly what its range takes.
    let servers = [
        (1, Health::Ready, 6 * 100 + 23 * 10 + 7),
        (4, Health::Ready, 6 * 100 + 17 * 10 + 3),
        (5, Health::Draining, 10_000),
        (6, Health::Gone, 10_000),
        (7, Health::Ready, 10_000),
        (9, Health::Ready, 2 * 100),
    ];
    let fleet = Fleet {
        servers: servers.map(|(id, state, mem_bytes)| server(id, state, mem_bytes)).to_vec(),
        ..Fleet::default()
    };
    let range = |(server, first_block, blocks, slots)| Range { server: ServerId(server), first_block, blocks, slots };
    // Ranges may overlap, may be out of order, and may serve no path.
    let ranges = [(4, 4, 6, 17), (1, 0, 6, 23), (9, 8, 1, 0)].map(range);
    let paths = vec![path(2, &[(1, 0, 6), (4, 6, 4)]), path(1, &[(1, 0, 5), (4, 5, 5)])];
    let plan = Plan { ranges: ranges.to_vec(), paths, ..Plan::default() };
    (model, fleet, plan)
}

type Spoil = fn(&mut Model, &mut Fleet, &mut Plan);

/// The message after each way of spoiling the good plan.
fn refused(spoil: Spoil) -> String {
    let (mut model, mut fleet, mut plan) = good();
    spoil(&mut model, &mut fleet, &mut plan);
    check(&model, &fleet, &plan).map_or_else(|violation| violation.to_string(), |()| "allowed".to_owned())
}

#[test]
fn a_plan_that_uses_everything_up_is_right() {
    // Needed of server 1: 2 x 6 + 5 slots, of server 4: 2 x 4 + 5.
    assert_eq!(refused(|_, _, _| {}), "allowed");
    assert_eq!(refused(|_, _, plan| plan.ranges[1].slots = 17), "allowed");
    assert_eq!(refused(|_, _, plan| plan.ranges[0].slots = 13), "allowed");
}

#[test]
fn counts_are_within_their_limits() {
    let cases: [(&str, Spoil); 11] = [
        ("the model has no blocks", |model, _, _| model.blocks = 0),
        ("the fleet has 513 servers of at most 512", |_, fleet, _| fleet.servers.resize(513, fleet.servers[0])),
        ("server 1: its place in the fleet is not behind all smaller ids", |_, fleet, _| fleet.servers.swap(0, 1)),
        ("server 4: its place in the fleet is not behind all smaller ids", |_, fleet, _| {
            fleet.servers[2].id = ServerId(4);
        }),
        ("the plan has 7 ranges for 6 servers", |_, _, plan| plan.ranges.resize(7, plan.ranges[0])),
        ("the plan has 0 paths, but must have 1 to 512", |_, _, plan| plan.paths.clear()),
        ("the plan has 513 paths, but must have 1 to 512", |_, _, plan| {
            plan.paths.resize(513, plan.paths[0].clone());
        }),
        ("path 1: it has 0 hops, but must have 1 to 64", |_, _, plan| plan.paths[1].hops.clear()),
        ("path 1: it has 65 hops, but must have 1 to 64", |_, _, plan| {
            plan.paths[1] = path(1, &[(1, 0, 1); 65]);
        }),
        ("path 0: its capacity is 0, but must be 1 to 256", |_, _, plan| plan.paths[0].capacity = 0),
        ("path 0: its capacity is 257, but must be 1 to 256", |_, _, plan| plan.paths[0].capacity = 257),
    ];
    for (message, spoil) in cases {
        assert_eq!(refused(spoil), message);
    }
}

#[test]
fn a_range_is_of_one_ready_server_and_lies_in_the_model() {
    let cases: [(&str, Spoil); 7] = [
        ("server 8: the plan gives it a range, but there is no such server", |_, _, plan| {
            plan.ranges[2].server = ServerId(8);
        }),
        ("server 5: the plan gives it a range, but it is draining", |_, _, plan| plan.ranges[2].server = ServerId(5)),
        ("server 6: the plan gives it a range, but it is gone", |_, _, plan| plan.ranges[2].server = ServerId(6)),
        ("server 4: the plan gives it more than one range", |_, _, plan| plan.ranges[2].server = ServerId(4)),
        ("server 9: its range has no blocks", |_, _, plan| plan.ranges[2].blocks = 0),
        ("server 9: its range ends at block 11 of 10", |_, _, plan| plan.ranges[2].blocks = 3),
        ("server 9: its range ends at block 4294967296 of 10", |_, _, plan| plan.ranges[2].first_block = u32::MAX),
    ];
    for (message, spoil) in cases {
        assert_eq!(refused(spoil), message);
    }
}

#[test]
fn a_range_fits_the_memory_with_its_slots_and_its_ends() {
    let cases: [(&str, Spoil); 7] = [
        ("server 1: 6 blocks and 23 slots take 838 bytes of 837", |model, _, _| model.head_bytes = 8),
        ("server 4: 6 blocks and 17 slots take 774 bytes of 773", |model, _, _| model.tail_bytes = 4),
        ("server 4: 6 blocks and 18 slots take 783 bytes of 773", |_, _, plan| plan.ranges[0].slots = 18),
        ("server 1: 6 blocks and 23 slots take 837 bytes of 836", |_, fleet, _| fleet.servers[0].mem_bytes = 836),
        // Only what begins at the first block needs the head, only what ends at the last one needs the tail.
        ("server 9: 2 blocks and 0 slots take 203 bytes of 200", |_, _, plan| plan.ranges[2].blocks = 2),
        ("server 9: 1 blocks and 4294967295 slots take 42949673050 bytes of 200", |_, _, plan| {
            plan.ranges[2].slots = u32::MAX;
        }),
        ("server 4: 6 blocks and 17 slots take 110680464442257309863 bytes of 773", |model, _, _| {
            model.block_bytes = u64::MAX;
        }),
    ];
    for (message, spoil) in cases {
        assert_eq!(refused(spoil), message);
    }
}

#[test]
fn a_path_computes_every_block_once_in_order_where_it_is_held() {
    let cases: [(&str, Spoil); 9] = [
        ("path 0, hop 1: server 7 holds no range", |_, _, plan| plan.paths[0].hops[1].server = ServerId(7)),
        ("path 0, hop 1: server 8 holds no range", |_, _, plan| plan.paths[0].hops[1].server = ServerId(8)),
        ("path 1, hop 0: server 1 computes no blocks", |_, _, plan| plan.paths[1].hops[0].blocks = 0),
        ("path 1, hop 1: it begins at block 5, but block 4 is next", |_, _, plan| plan.paths[1].hops[0].blocks = 4),
        ("path 1, hop 1: it begins at block 5, but block 6 is next", |_, _, plan| plan.paths[1].hops[0].blocks = 6),
        ("path 0, hop 0: it begins at block 1, but block 0 is next", |_, _, plan| {
            plan.paths[0].hops[0].first_block = 1;
        }),
        ("path 0, hop 0: it computes blocks 0 to 7, but server 1 holds 0 to 6", |_, _, plan| {
            plan.paths[0].hops[0].blocks = 7;
        }),
        ("path 1, hop 1: it computes blocks 5 to 4294967300, but server 4 holds 4 to 10", |_, _, plan| {
            plan.paths[1].hops[1].blocks = u32::MAX;
        }),
        ("path 1: it ends at block 9 of 10", |_, _, plan| plan.paths[1].hops[1].blocks = 4),
    ];
    for (message, spoil) in cases {
        assert_eq!(refused(spoil), message);
    }
    let early = refused(|_, _, plan| plan.paths[0].hops[0].server = ServerId(4));
    assert_eq!(early, "path 0, hop 0: it computes blocks 0 to 6, but server 4 holds 4 to 10");
}

#[test]
fn all_paths_together_need_no_more_than_the_slots() {
    let cases: [(&str, Spoil); 4] = [
        ("server 1: its paths need 17 slots of 16", |_, _, plan| plan.ranges[1].slots = 16),
        ("server 4: its paths need 13 slots of 12", |_, _, plan| plan.ranges[0].slots = 12),
        ("server 1: its paths need 29 slots of 23", |_, _, plan| plan.paths[0].capacity = 4),
        ("server 1: its paths need 27 slots of 23", |_, _, plan| plan.paths[1].capacity = 3),
    ];
    for (message, spoil) in cases {
        assert_eq!(refused(spoil), message);
    }
}

#[test]
fn a_path_may_come_back_to_a_server() {
    let (model, fleet, mut plan) = good();
    plan.paths[0] = path(2, &[(1, 0, 4), (4, 4, 1), (1, 5, 1), (4, 6, 4)]);
    assert_eq!(check(&model, &fleet, &plan), Ok(()));
    // Both visits count: 3 x (4 + 1) and 5.
    plan.paths[0].capacity = 3;
    plan.ranges[1].slots = 19;
    let violation = Violation::Slots { server: ServerId(1), needed: 20, slots: 19 };
    assert_eq!(check(&model, &fleet, &plan), Err(violation));
}

#[test]
fn the_time_of_a_path_is_its_visits_and_its_blocks() {
    let fleet = speeds(&[(1, 1000, 10), (4, 2000, 20)]);
    assert_eq!(service_ns(&fleet, &path(1, &[(1, 0, 3), (4, 3, 2)])), Some(3070));
    assert_eq!(service_ns(&fleet, &path(1, &[])), Some(0));
    assert_eq!(service_ns(&fleet, &path(1, &[(1, 0, 3), (5, 3, 2)])), None);
}

#[test]
fn the_longest_times_stop_at_the_largest_number() {
    let fleet = speeds(&[(1, u64::MAX, 1), (4, 1, u64::MAX)]);
    assert_eq!(service_ns(&fleet, &path(1, &[(1, 0, 1)])), Some(u64::MAX));
    assert_eq!(service_ns(&fleet, &path(1, &[(4, 0, u32::MAX), (1, 0, u32::MAX)])), Some(u64::MAX));
}
