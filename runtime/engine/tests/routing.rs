//! Admission, decisions and the queue: what is asked of a policy, what it is told, and what overrules it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::VecDeque;

use common::{World, config, request};
use pointsman_engine::builtin::Builtin;
use pointsman_engine::decision::{Fault, FaultClass, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::limits;
use pointsman_engine::output::Finish;
use pointsman_engine::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::request::Reject;
use pointsman_engine::snapshot::{RouteEvent, Snapshot};

/// Answers from a script (then `Queue` and none), and notes what it is told.
#[derive(Default)]
struct Script {
    picks: VecDeque<RouteDecision>,
    pulls: VecDeque<Option<u32>>,
    view: Option<Snapshot>,
    told: Vec<(u64, Vec<RouteEvent>)>,
    asked: Vec<Pick>,
    windows: Vec<(ChainId, Vec<u64>)>,
    refused: Vec<String>,
}

impl RoutePolicy for Script {
    fn wants_snapshot(&self) -> bool {
        self.view.is_none()
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        self.view = Some(snapshot.clone());
        Ok(())
    }

    fn apply(&mut self, seq: u64, events: &[RouteEvent]) -> Result<(), Fault> {
        self.told.push((seq, events.to_vec()));
        Ok(())
    }

    fn pick(&mut self, ask: &Pick, _overlap: &[Overlap]) -> Result<RouteDecision, Fault> {
        self.asked.push(*ask);
        Ok(self.picks.pop_front().unwrap_or(RouteDecision::Queue))
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault> {
        self.windows.push((ask.chain, waiting.iter().map(|waiting| waiting.id.0).collect()));
        Ok(self.pulls.pop_front().unwrap_or(None))
    }

    fn refused(&mut self, why: &Fault) {
        self.refused.push(why.to_string());
    }
}

fn script(picks: &[RouteDecision], pulls: &[Option<u32>]) -> Script {
    Script { picks: picks.iter().copied().collect(), pulls: pulls.iter().copied().collect(), ..Script::default() }
}

fn to(chain: u32) -> RouteDecision {
    RouteDecision::Dispatch(ChainId(chain))
}

fn fallbacks(world: &World, class: FaultClass) -> u64 {
    let index = FaultClass::ALL.iter().position(|&each| each == class).unwrap();
    world.engine.stats().fallbacks_total[index]
}

#[test]
fn refuses_what_can_not_enter() {
    let mut config = config(&[(1, 5, 1)]);
    config.queue_max = 1;
    let (mut world, policy) = (World::new(&config), &mut Builtin::default());
    assert_eq!(world.submit(0, request(10, 11), policy), Err(Reject::TooLarge { needed: 21, available: 20 }));
    assert_eq!(world.submit(1, request(10, 10), policy), Ok(()));
    assert!(matches!(world.submit(1, request(1, 1), policy), Err(Reject::Invalid { field: "id", .. })));
    assert_eq!(world.submit(2, request(1, 1), policy), Ok(()));
    assert_eq!(world.submit(3, request(1, 1), policy), Err(Reject::QueueFull(1)));
    world.engine.drain();
    assert_eq!(world.submit(4, request(1, 1), policy), Err(Reject::Draining));
    world.finish(policy);
    assert_eq!([world.done(1), world.done(2)], [Some(&Finish::Length); 2], "draining finishes what runs and waits");
    let stats = world.engine.stats();
    assert_eq!((stats.accepted_total, stats.rejected_total, stats.decisions_total), (2, 4, 3));
}

#[test]
fn a_policy_rejects_at_the_door_or_after_deferring() {
    let mut world = World::new(&config(&[(1, 5, 1)]));
    let defer = RouteDecision::Defer(Micros(2000));
    let policy = &mut script(&[RouteDecision::Reject(7), defer, RouteDecision::Reject(8)], &[]);
    assert_eq!(world.submit(0, request(1, 1), policy), Err(Reject::Policy(7)));
    assert_eq!(world.submit(1, request(1, 1), policy), Ok(()));
    assert_eq!(world.engine.next_deadline(), Some(Micros(2000)));
    world.now = 1999;
    world.tick(policy);
    assert_eq!(policy.asked.len(), 2, "not before its time");
    world.now = 2000;
    world.tick(policy);
    assert_eq!(world.done(1), Some(&Finish::Rejected(8)));
    assert_eq!(world.engine.stats().failed_total, 1);
}

#[test]
fn deferrals_are_bounded_below_and_above_and_hidden_from_pulls() {
    let mut world = World::new(&config(&[(4, 40, 1)]));
    let policy = &mut script(&[RouteDecision::Defer(Micros(0)), RouteDecision::Defer(Micros(u64::MAX)), to(0)], &[]);
    world.now = 50;
    assert_eq!(world.submit(0, request(1, 1), policy), Ok(()));
    assert!(policy.windows.is_empty(), "a deferred request is offered to no chain");
    assert_eq!(world.engine.next_deadline(), Some(Micros(50 + limits::DEFER_MICROS_MIN)));
    world.now = 50 + limits::DEFER_MICROS_MIN;
    world.tick(policy);
    assert_eq!(world.engine.next_deadline(), Some(Micros(world.now + limits::DEFER_MICROS_MAX)));
    world.now += limits::DEFER_MICROS_MAX;
    world.tick(policy);
    assert_eq!(world.in_flight(0), 1);
}

#[test]
fn an_answer_that_the_tables_do_not_allow_is_decided_by_the_builtin() {
    let mut world = World::new(&config(&[(1, 5, 1), (1, 10, 1), (1, 10, 1)]));
    let policy = &mut script(&[to(9), to(0), to(1), to(2), to(2)], &[]);
    world.set_open(2, false, policy);
    // No such chain; then too few blocks; both go to where the builtin sends them.
    assert_eq!(world.submit(0, request(1, 1), policy), Ok(()));
    assert_eq!(world.submit(1, request(20, 10), policy), Ok(()));
    assert_eq!([world.in_flight(0), world.in_flight(1)], [1, 1]);
    // Full; closed: nothing has room, so they wait.
    assert_eq!(world.submit(2, request(1, 1), policy), Ok(()));
    assert_eq!(world.submit(3, request(1, 1), policy), Ok(()));
    assert_eq!(world.engine.stats().waiting, 2);
    let expected = ["chain 9 does not exist", "chain 0 runs 1 jobs", "chain 1 runs 1 jobs", "chain 2 is closed"];
    assert_eq!(policy.refused.len(), 4);
    for (refused, expected) in policy.refused.iter().zip(expected) {
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(fallbacks(&world, FaultClass::Invalid), 4);
    // A request that does not exist is pulled: the builtin takes the first that fits.
    policy.pulls.push_back(Some(2));
    world.step(0, policy);
    assert_eq!((world.in_flight(0), fallbacks(&world, FaultClass::Invalid)), (1, 5));
    assert_eq!(policy.windows, [(ChainId(0), vec![2, 3])]);
}

#[test]
fn queueing_into_a_full_queue_is_no_fault_and_loses_nothing() {
    let mut config = config(&[(1, 20, 1)]);
    config.queue_max = 0;
    let mut world = World::new(&config);
    let policy = &mut script(&[RouteDecision::Queue, RouteDecision::Defer(Micros(5))], &[]);
    assert_eq!(world.submit(0, request(1, 2), policy), Ok(()));
    assert_eq!((world.in_flight(0), fallbacks(&world, FaultClass::Invalid)), (1, 0));
    assert_eq!(world.submit(1, request(1, 1), policy), Err(Reject::QueueFull(0)));
    assert_eq!(fallbacks(&world, FaultClass::Invalid), 0, "under overload nobody is asked, so nobody is at fault");
}

#[test]
fn a_policy_is_told_what_changed_and_nothing_twice() {
    let mut world = World::new(&config(&[(2, 20, 1), (2, 20, 1)]));
    let policy = &mut script(&[to(1), to(1), to(0)], &[]);
    assert_eq!(world.submit(0, request(3, 1), policy), Ok(()));
    let view = policy.view.clone().unwrap();
    assert_eq!((view.seq, view.queued, view.chains.len(), view.chains[1].free_tokens), (0, 0, 2, 80));
    assert_eq!(world.submit(1, request(7, 2), policy), Ok(()));
    assert_eq!(policy.told, [(2, vec![RouteEvent::Busy(ChainId(1), 1), RouteEvent::FreeTokens(ChainId(1), 76)])]);
    // The first ends after 100 µs; the second goes on. One busy job as before, so only tokens and time are news.
    world.now = 100;
    world.step(1, policy);
    assert_eq!(world.submit(2, request(1, 1), policy), Ok(()));
    let news = vec![RouteEvent::FreeTokens(ChainId(1), 68), RouteEvent::Service(ChainId(1), Micros(100))];
    assert_eq!(policy.told[1], (4, news));
    world.set_open(0, false, policy);
    assert_eq!(world.submit(3, request(1, 1), policy), Ok(()));
    let news = vec![
        RouteEvent::Busy(ChainId(0), 1),
        RouteEvent::FreeTokens(ChainId(0), 76),
        RouteEvent::Open(ChainId(0), false),
    ];
    assert_eq!(policy.told[2], (7, news));
    assert_eq!(policy.told[3], (8, vec![RouteEvent::Queued(1)]));
    assert_eq!(world.engine.snapshot().seq, 8);
    assert_eq!(policy.asked.iter().map(|ask| ask.seq).collect::<Vec<_>>(), [0, 2, 4, 7]);
    let mut random: Vec<u64> = policy.asked.iter().map(|ask| ask.rnd).collect();
    random.sort_unstable();
    random.dedup();
    assert_eq!(random.len(), 4, "random bits are fresh for each decision");
}

#[test]
fn pulls_go_on_until_nothing_fits_or_nothing_is_wanted() {
    let mut world = World::new(&config(&[(3, 10, 1)]));
    let policy = &mut script(&[to(0)], &[None, None, None, Some(1), Some(0)]);
    assert_eq!(world.submit(0, request(20, 20), policy), Ok(()));
    for (id, prompt) in [(1, 3), (2, 27), (3, 8)] {
        assert_eq!(world.submit(id, request(prompt, 1), policy), Ok(()));
    }
    assert!(policy.windows.is_empty(), "without a free block nothing fits");
    world.cancel(0, policy);
    assert!(policy.windows.is_empty(), "the blocks are in use until the micro-batch is back");
    world.step(0, policy);
    assert_eq!(policy.windows, [(ChainId(0), vec![1, 2, 3])]);
    world.tick(policy);
    world.tick(policy);
    assert_eq!(policy.windows.len(), 3, "none is an answer; it is asked again with the next input");
    world.tick(policy);
    // 7 blocks for request 2, one for request 1; request 3 needs 3 and does not fit any more.
    assert_eq!(policy.windows[3..], [(ChainId(0), vec![1, 2, 3]), (ChainId(0), vec![1, 3])]);
    assert_eq!((world.engine.stats().running, world.engine.stats().waiting), (2, 1));
}

#[test]
fn a_starving_request_that_fits_is_dispatched_whatever_the_policy_says() {
    let mut world = World::new(&config(&[(4, 40, 1)]));
    let policy = &mut Script::default();
    assert_eq!(world.submit(0, request(1, 1), policy), Ok(()));
    world.now = 1;
    assert_eq!(world.submit(1, request(1, 1), policy), Ok(()));
    assert_eq!(world.engine.next_deadline(), Some(Micros(limits::STARVATION_MICROS + 1)));
    world.now = limits::STARVATION_MICROS;
    world.tick(policy);
    assert_eq!(world.engine.stats().starved_total, 0);
    world.now += 1;
    world.tick(policy);
    assert_eq!((world.engine.stats().starved_total, world.engine.stats().waiting), (1, 1));
    world.finish(policy);
    assert_eq!(world.engine.stats().starved_total, 2);
}

#[test]
fn small_requests_do_not_starve_a_large_one() {
    let mut world = World::new(&config(&[(4, 10, 1), (1, 2, 1)]));
    let policy = &mut Builtin::default();
    assert_eq!(world.submit(0, request(16, 4), policy), Ok(()));
    assert_eq!(world.submit(1, request(36, 4), policy), Ok(()), "it needs all blocks of chain 0 and waits");
    assert_eq!(world.submit(2, request(8, 4), policy), Ok(()));
    assert_eq!((world.engine.stats().running, world.engine.stats().waiting), (2, 1), "one that fits overtakes it");
    world.now = limits::STARVATION_MICROS + 1;
    assert_eq!(world.submit(4, request(4, 4), policy), Ok(()));
    assert_eq!(world.submit(3, request(4, 4), policy), Ok(()));
    // Chain 1 could never hold the large one and goes on; chain 0 is kept for it, although request 3 would fit.
    assert_eq!((world.in_flight(0), world.in_flight(1), world.engine.stats().waiting), (1, 1, 2));
    while world.done(0).is_none() || world.done(2).is_none() {
        assert_eq!(world.engine.stats().starved_total, 0);
        world.step(0, policy);
    }
    assert_eq!((world.engine.stats().starved_total, world.engine.stats().chains[0].kv_blocks_used), (1, 10));
    assert!(world.done(3).is_none());
    world.finish(policy);
}

#[test]
fn a_chain_that_drains_takes_nothing_and_finishes_what_it_runs() {
    let mut world = World::new(&config(&[(4, 40, 1), (4, 40, 1)]));
    let policy = &mut Builtin::default();
    assert_eq!(world.submit(0, request(4, 4), policy), Ok(()));
    world.set_open(0, false, policy);
    for id in 1..6 {
        assert_eq!(world.submit(id, request(4, 4), policy), Ok(()));
    }
    let stats = world.engine.stats();
    assert_eq!((stats.chains[0].dispatched_total, stats.chains[1].dispatched_total, stats.waiting), (1, 4, 1));
    world.finish(policy);
    assert_eq!(world.engine.stats().chains[0].dispatched_total, 1);
    assert!(!world.engine.set_open(Micros(0), ChainId(2), true, policy, &mut world.out));
}

#[test]
fn failing_everything_ends_every_request_once() {
    let mut world = World::new(&config(&[(2, 40, 1)]));
    let policy = &mut Builtin::default();
    for id in 0..4 {
        assert_eq!(world.submit(id, request(4, 4), policy), Ok(()));
    }
    world.engine.fail_all("the server is shutting down", &mut world.out);
    let ended: Vec<RequestId> = world.out.events.iter().map(|(id, _)| *id).collect();
    assert_eq!(ended, [0, 1, 2, 3].map(RequestId));
    assert_eq!((world.engine.stats().running, world.engine.stats().chains[0].busy), (0, 1), "one is in flight");
    assert!(!world.engine.is_idle());
    world.step(0, policy);
    assert!(world.engine.is_idle());
    assert_eq!(world.engine.stats().chains[0].kv_blocks_used, 0);
}
