//! The policy as the host meets it.

use super::*;
use pointsman_sdk::testing::{Harness, cluster, history, request, sparse, waiting};
use pointsman_sdk::{ChainId, Saved};

const MS: Micros = 1000;

/// Chains of 100 tokens with these capacities, running jobs and service times in ms.
fn snapshot(chains: &[(u32, u32, u64)]) -> Cluster {
    let chain =
        |(id, &(capacity, busy, service))| Chain::new(ChainId(id), capacity, 100).with_state(busy, true, service * MS);
    Cluster::new(1, 0, (0..).zip(chains).map(chain).collect(), 0)
}

fn slo(config: &str, chains: &[(u32, u32, u64)]) -> Harness<Slo> {
    Harness::new(config, snapshot(chains)).unwrap()
}

/// A request at 1 s that is due so many ms later.
fn within(ms: u64) -> Request {
    Request { now: 1000 * MS, deadline: (1000 + ms) * MS, ..request(10) }
}

fn to(chain: u32) -> Decision {
    Decision::Dispatch(ChainId(chain))
}

/// Asks `pull` for room on chain 0 at `now` ms.
fn pull(policy: &mut Harness<Slo>, now: u64, window: &[Waiting]) -> Option<usize> {
    let words = |it: &Waiting| {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [it.id, pair(it.tenant, it.class), pair(it.prompt, it.reserve), it.waited]
    };
    let words: Vec<u64> = window.iter().flat_map(words).collect();
    let index = policy.driver().pull(&Pull { now: now * MS, rnd: 0, chain: ChainId(0) }, &words);
    (index != u32::MAX).then_some(index as usize)
}

/// A waiting request that came at `arrived` ms, seen at `now` ms.
fn since(id: u64, reserve: u32, arrived: u64, now: u64) -> Waiting {
    Waiting { waited: (now - arrived) * MS, ..waiting(id, reserve) }
}

#[test]
fn the_slowest_chain_that_is_surely_in_time() {
    let mut policy = slo("", &[(4, 0, 100), (4, 0, 1000), (4, 0, 10)]);
    // A quarter of the time left is to be spared.
    assert_eq!(policy.pick(&within(1400)), to(1));
    assert_eq!(policy.pick(&within(1300)), to(0));
    assert_eq!(policy.pick(&within(140)), to(0));
    assert_eq!(policy.pick(&within(130)), to(2));
    // In time, but not surely on any: the first to be done.
    assert_eq!(policy.pick(&within(11)), to(2));
    // Full chains promise twice the time of idle ones: here 1750 ms.
    policy.busy(1, 3);
    assert_eq!(policy.pick(&within(2300)), to(0));
    assert_eq!(policy.pick(&within(2400)), to(1));
}

#[test]
fn of_chains_of_a_kind_the_first_to_be_done() {
    // 70 and 120 ms lie between the same powers of two, in microseconds.
    let mut policy = slo("", &[(4, 0, 120), (4, 0, 70), (4, 0, 70), (4, 0, 1)]);
    assert_eq!(policy.pick(&within(900)), to(1));
    policy.busy(1, 1);
    assert_eq!(policy.pick(&within(900)), to(2));
    policy.busy(1, 3);
    policy.busy(2, 3);
    assert_eq!(policy.pick(&within(900)), to(0));
}

#[test]
fn tries_a_chain_of_which_nothing_is_known() {
    let mut policy = slo("", &[(4, 0, 100), (4, 0, 0), (4, 0, 0)]);
    assert_eq!(policy.pick(&within(5)), to(1));
    policy.busy(1, 1);
    assert_eq!(policy.pick(&within(5000)), to(2));
    assert_eq!(policy.pick(&request(10)), to(2));
    policy.event(Event::Service(ChainId(2), 1));
    policy.busy(1, 4);
    assert_eq!(policy.pick(&within(5000)), to(0));
}

#[test]
fn without_a_deadline_there_is_time_or_a_default() {
    let ask = Request { deadline: 0, ..within(0) };
    let chains = [(4, 0, 10), (4, 0, 1000)];
    assert_eq!(slo("", &chains).pick(&ask), to(1));
    assert_eq!(slo("{\"default_ms\": 0}", &chains).pick(&ask), to(1));
    assert_eq!(slo("{\"default_ms\": 1400}", &chains).pick(&ask), to(1));
    assert_eq!(slo("{\"default_ms\": 1300}", &chains).pick(&ask), to(0));
    // Its own deadline goes before the default.
    assert_eq!(slo("{\"default_ms\": 1300}", &chains).pick(&within(1400)), to(1));
}

#[test]
fn what_is_too_late_already_is_refused() {
    let mut policy = slo("{\"shed\": true}", &[(4, 0, 10)]);
    assert_eq!(policy.pick(&within(0)), Decision::Reject(PASSED));
    assert_eq!(policy.pick(&Request { deadline: 1, ..within(0) }), Decision::Reject(PASSED));
    assert_eq!(policy.trace(&within(0), &[]), []);
    // Also when others wait: no place in the queue helps it.
    policy.event(Event::Queued(1));
    assert_eq!(policy.pick(&within(0)), Decision::Reject(PASSED));
}

#[test]
fn what_no_chain_can_do_in_time_is_refused() {
    let mut policy = slo("", &[(4, 1, 100), (4, 1, 50), (4, 1, 1)]);
    policy.event(Event::Open(ChainId(2), false));
    assert_eq!(policy.pick(&within(49)), Decision::Reject(HOPELESS));
    // In time on chain 1 if that were idle: it is given the chance.
    assert_eq!(policy.pick(&within(50)), to(1));
    // Full chains are not closed ones: a request that could be in time later waits.
    policy.busy(1, 4);
    policy.busy(0, 4);
    assert_eq!(policy.pick(&within(50)), Decision::Queue);
    assert_eq!(policy.pick(&within(49)), Decision::Reject(HOPELESS));
    // A chain of which nothing is known may be fast enough, and where none is open nothing is known.
    policy.event(Event::Service(ChainId(0), 0));
    assert_eq!(policy.pick(&within(49)), Decision::Queue);
    policy.event(Event::Open(ChainId(0), false));
    policy.event(Event::Open(ChainId(1), false));
    assert_eq!(policy.pick(&within(1)), Decision::Queue);
}

#[test]
fn an_idle_chain_is_tried_before_a_request_is_refused() {
    let mut policy = slo("", &[(4, 1, 10), (4, 0, 200), (4, 0, 100)]);
    assert_eq!(policy.pick(&within(5)), to(2));
    assert_eq!(policy.trace(&within(5), &[]).iter().map(|it| it.chain.0).collect::<Vec<_>>(), [1, 2]);
    policy.busy(2, 1);
    assert_eq!(policy.pick(&within(5)), to(1));
    policy.event(Event::FreeTokens(ChainId(1), 9));
    assert_eq!(policy.pick(&within(5)), Decision::Reject(HOPELESS));
    policy.event(Event::FreeTokens(ChainId(1), 10));
    policy.event(Event::Queued(1));
    assert_eq!(policy.pick(&within(5)), Decision::Queue);
}

#[test]
fn nothing_is_refused_when_shedding_is_off() {
    let mut policy = slo("{\"shed\": false}", &[(4, 1, 100), (4, 1, 50)]);
    assert_eq!(policy.pick(&within(0)), to(1));
    assert_eq!(policy.pick(&Request { deadline: 1, ..within(0) }), to(1));
    assert_eq!(policy.pick(&within(5)), to(1));
    policy.busy(0, 4);
    policy.busy(1, 4);
    assert_eq!(policy.pick(&within(0)), Decision::Queue);
}

#[test]
fn passes_over_chains_that_can_not_take_it() {
    let mut policy = slo("", &[(4, 0, 900), (4, 0, 900), (0, 0, 0), (4, 3, 10)]);
    policy.event(Event::FreeTokens(ChainId(0), 9));
    policy.event(Event::Open(ChainId(1), false));
    assert_eq!(policy.pick(&within(5000)), to(3));
    policy.busy(3, u32::MAX);
    assert_eq!(policy.pick(&within(5000)), Decision::Queue);
}

#[test]
fn extremes_do_not_overflow() {
    let max = u32::MAX;
    let mut policy = slo("{\"default_ms\": 86400000}", &[(max, max - 1, 0), (1, 0, 0), (max, max - 1, 0)]);
    for chain in 0..3 {
        policy.event(Event::Service(ChainId(chain), u64::MAX - u64::from(chain)));
    }
    for (now, deadline) in [(0, 0), (0, u64::MAX), (u64::MAX - 1, u64::MAX), (u64::MAX, 0), (u64::MAX, 1)] {
        let ask = Request { now, deadline, ..request(10) };
        let _ = (policy.trace(&ask, &[]), policy.pick(&ask));
        let _ = policy.driver().pull(&Pull { now, rnd: 0, chain: ChainId(0) }, &[1, 0, 10, u64::MAX]);
    }
    // All are estimated at the most there is; the request that is due then is in time on each.
    let mut policy = slo("{\"shed\": false}", &[(1, 0, 0), (1, 0, 0)]);
    policy.event(Event::Service(ChainId(0), u64::MAX));
    policy.event(Event::Service(ChainId(1), 1 << 63));
    assert_eq!(policy.pick(&Request { deadline: u64::MAX, ..request(10) }), to(1));
}

#[test]
fn room_goes_to_the_earliest_deadline_that_can_be_made() {
    let mut policy = slo("", &[(1, 1, 100)]);
    let come = |policy: &mut Harness<Slo>, at: u64, due: u64, reserve: u32| {
        let ask = Request { now: at * MS, deadline: due * MS, ..request(reserve) };
        assert_eq!(policy.pick(&ask), Decision::Queue);
        policy.event(Event::Queued(policy.cluster().queued() + 1));
    };
    come(&mut policy, 1000, 0, 20); // Best effort.
    come(&mut policy, 1001, 1900, 21);
    come(&mut policy, 1002, 1500, 22);
    come(&mut policy, 1002, 1400, 23);
    come(&mut policy, 1003, 1150, 24); // Too late by the time that there is room.
    policy.busy(0, 0);
    let arrived = [(20, 1000), (21, 1001), (22, 1002), (23, 1002), (24, 1003)];
    let window = |now| (0..).zip(arrived).map(|(id, (reserve, at))| since(id, reserve, at, now)).collect::<Vec<_>>();
    assert_eq!(pull(&mut policy, 1100, &window(1100)), Some(3));
    let mut rest = window(1100);
    rest.remove(3);
    assert_eq!(pull(&mut policy, 1100, &rest), Some(2));
    // Then those that are late or have no deadline, in order of arrival.
    assert_eq!(pull(&mut policy, 3000, &window(3000)), Some(0));
    // Only what fits.
    policy.event(Event::FreeTokens(ChainId(0), 22));
    assert_eq!(pull(&mut policy, 1100, &window(1100)), Some(2));
    policy.event(Event::FreeTokens(ChainId(0), 1));
    assert_eq!(pull(&mut policy, 1100, &window(1100)), None);
    assert_eq!(pull(&mut policy, 1100, &[]), None);
}

#[test]
fn a_default_deadline_is_counted_from_the_arrival() {
    let mut policy = slo("{\"default_ms\": 500}", &[(1, 1, 100)]);
    let own = Request { deadline: 1300 * MS, ..within(0) };
    assert_eq!(policy.pick(&own), Decision::Queue);
    policy.busy(0, 0);
    // Due at 1200 and 1300.
    let window = |now| [since(1, 20, 700, now), since(2, 10, 1000, now)];
    assert_eq!(pull(&mut policy, 1050, &window(1050)), Some(0));
    // The first can not be made any more. What is older than the head is forgotten, what is younger is not.
    assert_eq!(pull(&mut policy, 1150, &window(1150)), Some(1));
}

#[test]
fn what_is_alike_shares_the_earliest_deadline() {
    let mut policy = slo("", &[(1, 1, 100)]);
    for due in [900, 400, 700] {
        assert_eq!(policy.pick(&within(due)), Decision::Queue);
        policy.event(Event::Queued(1));
    }
    policy.busy(0, 0);
    let other = Waiting { tenant: 1, ..since(0, 10, 1000, 1010) };
    assert_eq!(pull(&mut policy, 1010, &[other, since(1, 10, 1000, 1010), since(2, 10, 1000, 1010)]), Some(1));
}

#[test]
fn remembers_no_more_than_the_queue_holds() {
    let mut policy = slo("", &[(1, 1, 1)]);
    let records = |policy: &Harness<Slo>| policy.save().unwrap().bytes.len() / 32;
    for at in 0..1000 {
        let ask = Request { now: at, deadline: at + 50_000, ..request(10) };
        assert_eq!(policy.pick(&ask), Decision::Queue);
        policy.event(Event::Queued(1));
    }
    assert_eq!(records(&policy), 256);
    // A request that finds the queue empty starts anew.
    policy.event(Event::Queued(0));
    assert_eq!(policy.pick(&within(500)), Decision::Queue);
    assert_eq!(records(&policy), 1);
}

#[test]
fn deadlines_survive_a_swap() {
    let mut old = slo("", &[(1, 1, 100)]);
    for due in [(10, 900), (11, 400)] {
        assert_eq!(old.pick(&Request { reserve: due.0, prompt: 5, ..within(due.1) }), Decision::Queue);
        old.event(Event::Queued(1));
    }
    let saved = old.save().unwrap();
    let first = |saved: &Saved| {
        let mut new = Harness::succeed("", snapshot(&[(1, 0, 100)]), saved).unwrap();
        pull(&mut new, 1010, &[since(0, 10, 1000, 1010), since(1, 11, 1000, 1010)])
    };
    assert_eq!(first(&saved), Some(1));
    assert_eq!(first(&Saved { schema: "other".to_owned(), ..saved.clone() }), Some(0));
    for bytes in [saved.bytes[..63].to_vec(), saved.bytes.repeat(200), vec![0xff; 64], vec![0; 64]] {
        assert_eq!(first(&Saved { bytes, ..saved.clone() }), Some(0));
    }
    // Out of order.
    let mut bytes = saved.bytes.clone();
    bytes[32..40].fill(0);
    assert_eq!(first(&Saved { bytes, ..saved }), Some(0));
}

#[test]
fn the_lowest_score_is_the_chain_taken() {
    let mut policy = slo("{\"shed\": false}", &[(4, 1, 100), (4, 2, 90), (4, 0, 1000), (4, 3, 10), (4, 2, 0)]);
    for known in [0, 1] {
        for ms in [0, 5, 10, 12, 50, 150, 200, 500, 1300, 1400, 1_000_000] {
            let ask = within(ms);
            let named = policy.trace(&ask, &[]);
            let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score)).unwrap();
            assert_eq!(policy.pick(&ask), Decision::Dispatch(best.chain), "{ms} ms, {named:?}");
            assert_eq!(named.len(), 5);
        }
        policy.event(Event::Service(ChainId(4), known + 5 * MS));
    }
    policy.event(Event::Queued(1));
    assert_eq!(policy.trace(&within(1000), &[]), []);
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let refused = |config: &str| match Harness::<Slo>::new(config, cluster(&[])) {
        Err(InitError::BadConfig(why)) => why,
        other => panic!("{config}: {:?}", other.map(|_| ())),
    };
    assert_eq!(refused("{\"default\": 2}"), "unknown setting \"default\"; there are: default_ms, shed");
    let range = "setting \"default_ms\" must be a whole number from 0 to 86400000";
    assert_eq!(refused("{\"default_ms\": 86400001}"), range);
    assert_eq!(refused("{\"shed\": 1}"), "setting \"shed\" must be true or false");
}

#[test]
fn the_keys_never_go_stale() {
    for config in ["", "{\"shed\": false}"] {
        let mut policy = Harness::<Slo>::new(config, sparse(21)).unwrap();
        history(21, |rnd, event| match event {
            Some(event) => policy.event(event),
            None => {
                let (now, left) = (10, [1, 2, 100, 150, 200, 300, 8000, u64::MAX - 10][(rnd >> 8) as usize % 8]);
                let ask = Request { now, deadline: now + left, ..request((rnd % 100) as u32) };
                let named = policy.trace(&ask, &[]);
                let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score));
                match (policy.pick(&ask), best) {
                    (Decision::Queue | Decision::Reject(HOPELESS), None) => {}
                    (taken, best) => assert_eq!(Some(taken), best.map(|best| Decision::Dispatch(best.chain))),
                }
            }
        });
    }
}

#[test]
fn times_too_long_for_a_key_are_told_apart() {
    let mut policy = slo("", &[(4, 0, 1), (4, 1, 1), (4, 0, 1)]);
    let never = Request { now: 0, deadline: 0, ..request(10) };
    for (times, taken) in [
        // The longest that keys hold: the same power of two.
        ([(1 << 56) - 1, (1 << 56) - 1, (1 << 56) - 2], 2),
        ([(1 << 56) - 2, (1 << 56) - 1, (1 << 56) - 1], 0),
        ([1 << 56, (1 << 56) - 1, (1 << 56) - 2], 0),
        ([1 << 62, (1 << 62) + 2, (1 << 62) + 1], 0),
        ([(1 << 62) + 2, 1 << 62, (1 << 62) + 1], 2),
        // Keys are given up for good, and decisions are right still.
        ([1000, 520, 900], 1),
    ] {
        for (chain, time) in (0..).zip(times) {
            policy.event(Event::Service(ChainId(chain), time));
        }
        assert_eq!(policy.pick(&never), to(taken), "{times:?}");
    }
}
