//! The policy as the host meets it.

use super::accounts::TENANTS_MAX;
use super::*;
use pointsman_sdk::testing::{Harness, Order, cluster};
use pointsman_sdk::{ChainId, Saved};

const BUDGET: u32 = 96;

fn fair(config: &str) -> Harness<Fair> {
    Harness::new(config, cluster(&[(8, 9000)])).unwrap()
}

fn prompt(tenant: u32, pending: u32) -> Ready {
    Ready { tenant, prompt: pending, pending, ..Ready::default() }
}

fn decodes(tenant: u32) -> Ready {
    Ready { tenant, prompt: 10, computed: 12, pending: 1, generated: 2, ..Ready::default() }
}

/// In which order all prompts of a window would run.
fn order(policy: &mut Harness<Fair>, budget: u32, window: &[Ready]) -> Vec<usize> {
    let named = policy.step(budget, window).into_iter().map(|order| match order {
        Order::Run(index, 0) => index,
        other => panic!("{other:?}"),
    });
    let named: Vec<usize> = named.collect();
    let others = (0..window.len()).filter(|index| !window[*index].decodes() && !named.contains(index));
    let order: Vec<usize> = named.iter().copied().chain(others).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), order.len(), "none is named twice");
    order
}

/// One micro-batch of a host: each tenant of `waiting` has a queue of prompts in this usual order. Says what each was
/// served.
fn batch(policy: &mut Harness<Fair>, waiting: &mut Vec<Ready>) -> Vec<(u32, u32)> {
    let (mut budget, mut served) = (BUDGET, Vec::new());
    for index in order(policy, BUDGET, waiting) {
        let prompt = &mut waiting[index];
        let granted = prompt.pending.min(budget);
        budget -= granted;
        (prompt.pending, prompt.computed) = (prompt.pending - granted, prompt.computed + granted);
        if granted > 0 {
            served.push((prompt.tenant, granted));
        }
    }
    waiting.retain(|prompt| prompt.pending > 0);
    served.iter().for_each(|&(tenant, tokens)| policy.served(tenant, tokens, 0));
    served
}

fn dump(policy: &mut Harness<Fair>) -> String {
    policy.driver().dump()
}

#[test]
fn the_least_served_goes_first() {
    let mut policy = fair("");
    // All three wait, so that none is lifted, and are then served.
    let window = [prompt(7, 100), prompt(8, 100), prompt(9, 100)];
    assert_eq!(policy.step(BUDGET, &window), []);
    policy.served(7, 50, 0);
    policy.served(8, 10, 5);
    policy.served(9, 12, 0);
    // 50, 10 + 2 * 5 and 12.
    assert_eq!(order(&mut policy, BUDGET, &window), [2, 1, 0]);
}

#[test]
fn the_weights_are_the_operators() {
    let window = [prompt(1, 100), prompt(2, 100)];
    let first = |config| {
        let mut policy = fair(config);
        policy.step(BUDGET, &window);
        policy.served(1, 10, 0);
        policy.served(2, 0, 6);
        order(&mut policy, BUDGET, &window)[0]
    };
    assert_eq!(first("{}"), 0, "10 against 12");
    assert_eq!(first("{\"output_weight\": 1}"), 1, "10 against 6");
    assert_eq!(first("{\"prompt_weight\": 1000, \"output_weight\": 1000}"), 1);
    assert_eq!(first("{\"prompt_weight\": 2, \"output_weight\": 4}"), 0);
}

#[test]
fn one_tenant_does_not_take_a_budget_with_many_prompts() {
    let mut policy = fair("");
    let window = [prompt(1, 20), prompt(1, 20), prompt(1, 20), prompt(1, 20), prompt(2, 20), prompt(2, 20)];
    // Charged in turn: 1, 2, 1, 2, and then who is left.
    assert_eq!(policy.step(BUDGET, &window), [0, 4, 1, 5].map(|index| Order::Run(index, 0)));
    // A budget that the first prompt takes leaves nothing to charge for: the others follow by counter.
    assert_eq!(order(&mut policy, 20, &window), [0, 4, 5, 1, 2, 3]);
}

#[test]
fn equals_keep_the_usual_order() {
    let mut policy = fair("");
    let window = [prompt(9, 10), prompt(3, 10), prompt(5, 10)];
    assert_eq!(policy.step(BUDGET, &window), []);
    let window = [prompt(9, 10), prompt(3, 10), prompt(9, 10), prompt(3, 10)];
    assert_eq!(policy.step(BUDGET, &window), []);
}

#[test]
fn two_that_always_wait_are_served_alike() {
    let mut policy = fair("");
    let (mut waiting, mut totals) = (Vec::new(), [0_u32; 2]);
    for round in 0..2000_u32 {
        // Tenant 0 asks with long prompts, and with many; tenant 1 with short ones.
        while waiting.iter().filter(|it: &&Ready| it.tenant == 0).count() < 6 {
            waiting.push(prompt(0, 300 + round % 700));
        }
        while waiting.iter().filter(|it| it.tenant == 1).map(|it| it.pending).sum::<u32>() < BUDGET {
            waiting.push(prompt(1, 5 + round % 60));
        }
        let served = batch(&mut policy, &mut waiting);
        assert_eq!(served.iter().map(|(_, tokens)| tokens).sum::<u32>(), BUDGET, "the budget is used");
        served.iter().for_each(|&(tenant, tokens)| totals[tenant as usize] += tokens);
        assert!(totals[0].abs_diff(totals[1]) <= BUDGET, "{totals:?}");
    }
}

#[test]
fn whoever_comes_back_can_not_have_saved_up() {
    let mut policy = fair("");
    // Both are known; then tenant 1 is away while tenant 0 is served.
    let mut waiting = vec![prompt(0, 10), prompt(1, 10)];
    batch(&mut policy, &mut waiting);
    for _ in 0..1000 {
        waiting.resize(4, prompt(0, 500));
        batch(&mut policy, &mut waiting);
    }
    let mut totals = [0_u32; 2];
    for _ in 0..20 {
        waiting.extend([prompt(0, 500), prompt(1, 500)]);
        let served = batch(&mut policy, &mut waiting);
        served.iter().for_each(|&(tenant, tokens)| totals[tenant as usize] += tokens);
    }
    assert!(totals[0].abs_diff(totals[1]) <= BUDGET, "{totals:?}");
}

#[test]
fn whoever_asks_often_and_little_can_not_save_up_either() {
    let mut policy = fair("");
    let mut waiting = Vec::new();
    for _ in 0..1000 {
        waiting.push(prompt(1, 1));
        waiting.resize(5, prompt(0, 500));
        batch(&mut policy, &mut waiting);
    }
    waiting.insert(0, prompt(1, 100_000));
    let mut totals = [0_u32; 2];
    for _ in 0..20 {
        waiting.resize(5, prompt(0, 500));
        let served = batch(&mut policy, &mut waiting);
        served.iter().for_each(|&(tenant, tokens)| totals[tenant as usize] += tokens);
    }
    assert!(totals[0].abs_diff(totals[1]) <= 2 * BUDGET, "{totals:?}");
}

#[test]
fn where_nobody_waited_the_last_that_did_is_the_measure() {
    let mut policy = fair("");
    // Never more than the budget takes, so that nobody counts as waiting; outputs are what counts here.
    for _ in 0..10 {
        assert_eq!(policy.step(BUDGET, &[prompt(0, 10)]), []);
        policy.served(0, 10, 1000);
    }
    let window = [prompt(0, 60), prompt(1, 60), prompt(1, 60)];
    assert_eq!(order(&mut policy, BUDGET, &window), [0, 1, 2], "as equals");
}

#[test]
fn who_is_charged_without_being_known_starts_at_the_level() {
    let mut policy = fair("");
    policy.served(0, 1000, 0);
    // Tenant 0 waits, so that the level is 1000. What tenant 1 has decoded comes on top.
    (0..2).for_each(|_| drop(policy.step(BUDGET, &[prompt(0, 500)])));
    policy.served(1, 0, 3);
    assert!(dump(&mut policy).contains("{\"tenant\":1,\"ahead\":6,"), "{}", dump(&mut policy));
    assert_eq!(order(&mut policy, BUDGET, &[prompt(1, 10), prompt(0, 500)]), [1, 0]);
}

#[test]
fn whose_piece_is_in_flight_keeps_its_claim() {
    let window = [prompt(0, 500), prompt(1, 96)];
    let after = |steps| {
        let mut policy = fair("");
        // Half of the prompt of tenant 1 is left over, and is not ready while tenant 0 is served.
        policy.step(BUDGET, &[prompt(1, 192), prompt(0, 500)]);
        policy.served(1, 96, 0);
        policy.served(0, 700, 0);
        (0..steps).for_each(|_| drop(policy.step(BUDGET, &window[..1])));
        order(&mut policy, BUDGET, &window)
    };
    assert_eq!(after(1), [1, 0]);
    assert_eq!(after(63), [1, 0]);
    assert_eq!(after(64), [0, 1], "it has been away, and is lifted");
}

#[test]
fn those_that_decode_are_not_named() {
    let mut policy = fair("");
    let window = [decodes(1), decodes(2), prompt(1, 60), prompt(1, 60), prompt(2, 60)];
    assert_eq!(policy.step(BUDGET, &window), [2, 4].map(|index| Order::Run(index, 0)));
    assert_eq!(policy.step(BUDGET, &window[..2]), []);
    assert_eq!(policy.step(BUDGET, &[]), []);
    assert_eq!(policy.step(BUDGET, &[prompt(1, 60)]), []);
}

#[test]
fn counters_hold_on_all_chains_together() {
    let mut policy = fair("");
    let window = [prompt(1, 100), prompt(2, 100)];
    let ask = |chain| Step { chain: ChainId(chain), token_budget: BUDGET, ..Step::default() };
    let words: Vec<u64> = [1_u64, 2].iter().flat_map(|id| [*id, id << 32, 100 << 32, 100, 0, 0, 0, 0]).collect();
    assert_eq!(policy.driver().step(&ask(0), &words).len(), 0);
    policy.served(1, 96, 0);
    assert_eq!(policy.driver().step(&ask(5), &words), [1 << 56 | 1]);
    assert_eq!(order(&mut policy, BUDGET, &window), [1, 0]);
}

#[test]
fn extreme_values() {
    let mut policy = fair("{\"prompt_weight\": 1000, \"output_weight\": 1000}");
    let window = [prompt(0, u32::MAX), prompt(u32::MAX, u32::MAX), prompt(0, u32::MAX), prompt(u32::MAX, 0)];
    for _ in 0..100_000 {
        policy.served(u32::MAX, u32::MAX, u32::MAX);
        policy.served(0, u32::MAX, u32::MAX);
    }
    for budget in [0, 1, u32::MAX] {
        assert_eq!(order(&mut policy, budget, &window).len(), 3, "an empty prompt decodes");
    }
    let saved = policy.save().unwrap();
    assert!(Harness::<Fair>::succeed("", cluster(&[]), &saved).is_ok());
}

#[test]
fn at_most_so_many_tenants_are_known() {
    let mut policy = fair("");
    // Tenants that come once each, and one that is far ahead.
    policy.served(5, 1 << 30, 0);
    for first in (1000..2_000_000_u32).step_by(256 * 100) {
        let window: Vec<Ready> = (first..first + 256).map(|tenant| prompt(tenant, 10)).collect();
        assert_eq!(order(&mut policy, BUDGET, &window).len(), 256);
        (first..first + 256).for_each(|tenant| policy.served(tenant, tenant % 7, 1));
        assert!(policy.save().unwrap().bytes.len() <= 12 * TENANTS_MAX);
    }
    assert!(dump(&mut policy).contains("\"furthest_ahead\":[{\"tenant\":5,"), "the one is not forgotten");
    assert_eq!(order(&mut policy, BUDGET, &[prompt(5, 90), prompt(6, 90)]), [1, 0]);
}

#[test]
fn to_be_forgotten_is_to_start_at_the_level() {
    let mut policy = fair("");
    // All are equally far: all may be forgotten, and nobody is ahead of anybody.
    (0..TENANTS_MAX as u32).for_each(|tenant| policy.served(tenant, 100, 0));
    policy.served(u32::MAX, 100, 0);
    let tenants: Vec<Ready> = (0..256).map(|tenant| prompt(tenant, 1)).collect();
    assert_eq!(policy.step(256, &tenants), []);
    assert!(dump(&mut policy).starts_with("{\"step\":1,\"tenants\":257,"), "{}", dump(&mut policy));
}

#[test]
fn who_is_ahead_stays_so_over_a_swap() {
    let mut old = fair("");
    old.step(BUDGET, &[prompt(1, 100), prompt(2, 100), prompt(3, 100)]);
    [(1, 30), (2, 20), (3, 10)].iter().for_each(|&(tenant, tokens)| old.served(tenant, tokens, 0));
    let saved = old.save().unwrap();
    assert_eq!((saved.schema.as_str(), saved.bytes.len()), ("batch-fair/ahead/1", 36));
    let mut new = Harness::<Fair>::succeed("", cluster(&[]), &saved).unwrap();
    assert_eq!(new.save().unwrap().bytes, saved.bytes, "nothing is lost");
    assert_eq!(
        order(&mut new, BUDGET, &[prompt(1, 100), prompt(2, 100), prompt(3, 100), prompt(4, 100)]),
        [3, 2, 1, 0]
    );
}

#[test]
fn what_is_no_saved_state_is_ignored() {
    let schema = || "batch-fair/ahead/1".to_owned();
    let entry = |tenant: u32, ahead: u64| [&tenant.to_le_bytes()[..], &ahead.to_le_bytes()].concat();
    let kept = |schema: String, bytes: Vec<u8>| {
        let saved = Saved { schema, seq: 0, bytes };
        Harness::<Fair>::succeed("", cluster(&[]), &saved).unwrap().save().unwrap().bytes.len()
    };
    let good = [entry(1, 5), entry(2, 1 << 48)].concat();
    assert_eq!(kept(schema(), good.clone()), 24);
    assert_eq!(kept(schema(), Vec::new()), 0);
    assert_eq!(kept("batch-fair/ahead/2".to_owned(), good.clone()), 0, "another layout");
    assert_eq!(kept(String::new(), good.clone()), 0);
    assert_eq!(kept(schema(), good[..23].to_vec()), 0, "cut off");
    assert_eq!(kept(schema(), [entry(2, 5), entry(1, 5)].concat()), 0, "out of order");
    assert_eq!(kept(schema(), [entry(1, 5), entry(1, 6)].concat()), 0, "one twice");
    assert_eq!(kept(schema(), entry(1, 0)), 0, "not ahead");
    assert_eq!(kept(schema(), entry(1, (1 << 48) + 1)), 0, "too far");
    assert_eq!(kept(schema(), vec![0xff; 12]), 0);
    let many = |tenants| (0..tenants).flat_map(|tenant| entry(tenant, 1)).collect::<Vec<u8>>();
    assert_eq!(kept(schema(), many(1024)), 12 * 1024);
    assert_eq!(kept(schema(), many(1025)), 0, "too many");
}

#[test]
fn people_see_who_is_ahead() {
    let mut policy = fair("");
    assert_eq!(dump(&mut policy), "{\"step\":0,\"tenants\":0,\"furthest_ahead\":[]}");
    policy.step(BUDGET, &[prompt(1, 90), prompt(2, 90)]);
    policy.served(2, 7, 1);
    assert_eq!(
        dump(&mut policy),
        "{\"step\":1,\"tenants\":2,\"furthest_ahead\":[{\"tenant\":2,\"ahead\":9,\"waits\":true},\
         {\"tenant\":1,\"ahead\":0,\"waits\":false}]}"
    );
    (10..100).for_each(|tenant| policy.served(tenant, tenant, 0));
    assert_eq!(dump(&mut policy).matches("\"ahead\"").count(), 32);
}

#[test]
fn bad_settings_are_refused_by_name() {
    let refused = |config: &str| Harness::<Fair>::new(config, cluster(&[])).map(|_| ()).unwrap_err().to_string();
    for name in ["prompt_weight", "output_weight"] {
        for value in ["0", "1001", "true"] {
            let why = refused(&format!("{{\"{name}\": {value}}}"));
            assert!(why.contains(&format!("\"{name}\" must be a whole number from 1 to 1000")), "{why}");
        }
    }
    assert!(refused("{\"weight\": 5}").contains("unknown setting \"weight\"; there are: prompt_weight, output_weight"));
}
