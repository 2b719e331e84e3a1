//! Priority: prompts are computed in order of their class, the highest first, and waiting raises a class.
//!
//! Classes and waiting are put on one scale, time: a class counts as `age_ms` of waiting. Both of two prompts
//! that wait grow older alike, so the order between them never turns: none is begun and then left for the other.
//!
//! Those that decode are not named. They go before prompts anyway, and all of them run.

use std::cmp::Reverse;

use pointsman_sdk::{BatchPolicy, Cluster, InitError, Micros, Plan, Policy, Ready, Step, knobs};

/// Longest time that a class may be worth: an hour.
const AGE_MS_MAX: u64 = 3_600_000;
/// An hour in microseconds times the highest class is still a number of 64 bits.
const _: () = assert!(AGE_MS_MAX * 1000 <= u32::MAX as u64);
/// Room for the largest window.
const READY: usize = 256;

/// The policy.
pub struct Priority {
    /// Waiting that one class is worth; 0 where waiting counts for nothing.
    age: Micros,
    /// Prompts of the window that is being looked at: urgency and index.
    order: Vec<(Reverse<u64>, usize)>,
}

/// How urgent a prompt is; the highest goes first.
fn urgency(age: Micros, prompt: &Ready) -> u64 {
    match (age, u64::from(prompt.class)) {
        (0, class) => class,
        (age, class) => (class * age).saturating_add(prompt.waited),
    }
}

impl Policy for Priority {
    const NAME: &str = "batch-priority";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let age_ms = knobs(config, &["age_ms"])?.number("age_ms", 0..=AGE_MS_MAX, 2000)?;
        Ok(Self { age: age_ms * 1000, order: Vec::with_capacity(READY) })
    }
}

impl BatchPolicy for Priority {
    fn step(&mut self, _ask: &Step, ready: &[Ready], plan: &mut Plan) {
        let Self { age, order } = self;
        let prompts = ready.iter().enumerate().filter(|(_, it)| !it.decodes());
        order.clear();
        order.extend(prompts.map(|(index, it)| (Reverse(urgency(*age, it)), index)));
        // Of equals the first: the index is part of what is compared.
        order.sort_unstable();
        // Whoever comes last in the usual order anyway is not named.
        let usual = order.windows(2).rev().take_while(|pair| pair[0].1 < pair[1].1).count() + 1;
        let named = order.len().saturating_sub(usual);
        order[..named].iter().for_each(|&(_, index)| plan.run(index));
    }
}

pointsman_sdk::export_policy!(Priority: batch);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, Order, cluster};

    const MS: Micros = 1000;

    fn priority(config: &str) -> Harness<Priority> {
        Harness::new(config, cluster(&[(8, 9000)])).unwrap()
    }

    /// A prompt of this class that has waited so many ms.
    fn prompt(class: u32, waited_ms: u64) -> Ready {
        Ready { class, waited: waited_ms * MS, prompt: 100, pending: 100, ..Ready::default() }
    }

    fn decodes(class: u32) -> Ready {
        Ready { class, prompt: 10, computed: 12, pending: 1, generated: 2, ..Ready::default() }
    }

    /// In which order all prompts of a window would run.
    fn order(policy: &mut Harness<Priority>, window: &[Ready]) -> Vec<usize> {
        let named = policy.step(96, window).into_iter().map(|order| match order {
            Order::Run(index, 0) => index,
            other => panic!("{other:?}"),
        });
        let named: Vec<usize> = named.collect();
        let others = (0..window.len()).filter(|index| !window[*index].decodes() && !named.contains(index));
        named.iter().copied().chain(others).collect()
    }

    #[test]
    fn the_highest_class_goes_first() {
        let window = [prompt(0, 0), prompt(2, 0), prompt(1, 0), prompt(u32::MAX, 0)];
        for config in ["", "{\"age_ms\": 0}", "{\"age_ms\": 3600000}"] {
            assert_eq!(order(&mut priority(config), &window), [3, 1, 2, 0], "{config}");
        }
    }

    #[test]
    fn equals_keep_the_usual_order() {
        let window = [prompt(1, 5), prompt(2, 5), prompt(1, 5), prompt(2, 5), prompt(1, 5)];
        assert_eq!(order(&mut priority(""), &window), [1, 3, 0, 2, 4]);
    }

    #[test]
    fn waiting_raises_the_class() {
        // By default 2 s are worth a class.
        let mut policy = priority("{}");
        assert_eq!(order(&mut policy, &[prompt(1, 0), prompt(0, 1999)]), [0, 1]);
        assert_eq!(order(&mut policy, &[prompt(1, 0), prompt(0, 2000)]), [0, 1], "of equals the first");
        assert_eq!(order(&mut policy, &[prompt(1, 0), prompt(0, 2001)]), [1, 0]);
        assert_eq!(order(&mut policy, &[prompt(3, 10), prompt(0, 6011)]), [1, 0]);
        // Of one class the oldest.
        assert_eq!(order(&mut policy, &[prompt(1, 10), prompt(1, 11)]), [1, 0]);
        let mut policy = priority("{\"age_ms\": 10}");
        assert_eq!(order(&mut policy, &[prompt(1, 0), prompt(0, 11)]), [1, 0]);
    }

    #[test]
    fn without_ageing_only_the_class_counts() {
        let mut policy = priority("{\"age_ms\": 0}");
        let window = [prompt(0, 1_000_000), prompt(1, 0), prompt(1, 1_000_000), prompt(0, 2_000_000)];
        assert_eq!(order(&mut policy, &window), [1, 2, 0, 3]);
    }

    #[test]
    fn the_order_of_two_does_not_turn_while_they_wait() {
        let mut policy = priority("");
        let then = |ms: u64| [prompt(0, 3000 + ms), prompt(2, 500 + ms), prompt(1, 1500 + ms)];
        let first = order(&mut policy, &then(0));
        for ms in [1, 500, 1999, 2000, 86_400_000] {
            assert_eq!(order(&mut policy, &then(ms)), first);
        }
    }

    #[test]
    fn those_that_decode_are_not_named() {
        let window = [decodes(0), decodes(9), prompt(0, 0), prompt(1, 0), prompt(0, 0)];
        assert_eq!(priority("").step(96, &window), [Order::Run(3, 0)], "and nobody who goes as usual");
        assert_eq!(priority("").step(96, &window[..2]), []);
    }

    #[test]
    fn names_nobody_where_the_order_is_the_usual_one() {
        let mut policy = priority("");
        assert_eq!(policy.step(96, &[]), []);
        assert_eq!(policy.step(96, &[prompt(0, 0)]), []);
        assert_eq!(policy.step(96, &[prompt(2, 9), prompt(1, 9), prompt(1, 9), prompt(0, 0)]), []);
    }

    #[test]
    fn extreme_values() {
        let mut policy = priority("{\"age_ms\": 3600000}");
        let oldest = Ready { waited: u64::MAX, ..prompt(u32::MAX, 0) };
        let older = Ready { waited: u64::MAX, ..prompt(0, 0) };
        // Both are as urgent as can be.
        assert_eq!(order(&mut policy, &[prompt(u32::MAX, 0), older, oldest]), [1, 2, 0]);
        let window: Vec<Ready> = (0..256).map(|index| prompt(index, 0)).collect();
        assert_eq!(order(&mut policy, &window), (0..256).rev().collect::<Vec<_>>());
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let refused =
            |config: &str| Harness::<Priority>::new(config, cluster(&[])).map(|_| ()).unwrap_err().to_string();
        assert!(refused("{\"age_ms\": 3600001}").contains("\"age_ms\" must be a whole number from 0 to 3600000"));
        assert!(refused("{\"age_ms\": true}").contains("\"age_ms\""));
        assert!(refused("{\"age_ms\": -1}").contains("\"age_ms\""));
        assert!(refused("{\"age-ms\": 5}").contains("unknown setting \"age-ms\"; there are: age_ms"));
        assert!(refused("age_ms").contains("JSON object"));
    }
}
