//! Shortest remaining prompt first: of the prompts that are ready, those with the fewest tokens left to compute go
//! first.
//!
//! How many tokens a request will generate is not known, so only the known part of its work is looked at. A bound keeps
//! long prompts from waiting for ever: whoever has been passed over `passed_max` times in a row goes before all others.
//!
//! Those that decode are not named. They go before prompts anyway, and all of them run.

use pointsman_sdk::{BatchPolicy, Cluster, InitError, Plan, Policy, Ready, Step, knobs};

/// Micro-batches after which the host itself runs a sequence first; to wait for longer is no choice.
const PASSED_MAX: u64 = 64;
/// Room for the largest window.
const READY: usize = 256;

/// The policy.
pub struct Srpt {
    /// Micro-batches in a row in which a prompt is passed over at most.
    passed_max: u32,
    /// Prompts of the window that is being looked at: [`left`] and index.
    order: Vec<(u64, usize)>,
}

/// What is left of a prompt; nothing, as it were, if it has been passed over for too long.
fn left(passed_max: u32, prompt: &Ready) -> u64 {
    if prompt.passed >= passed_max { 0 } else { 1 + u64::from(prompt.pending) }
}

impl Policy for Srpt {
    const NAME: &str = "batch-srpt";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let passed_max = knobs(config, &["passed_max"])?.number("passed_max", 1..=PASSED_MAX, 32)?;
        Ok(Self { passed_max: passed_max as u32, order: Vec::with_capacity(READY) })
    }
}

impl BatchPolicy for Srpt {
    fn step(&mut self, _ask: &Step, ready: &[Ready], plan: &mut Plan) {
        let Self { passed_max, order } = self;
        let prompts = ready.iter().enumerate().filter(|(_, it)| !it.decodes());
        order.clear();
        order.extend(prompts.map(|(index, it)| (left(*passed_max, it), index)));
        // Of equals the first: the index is part of what is compared.
        order.sort_unstable();
        // Whoever comes last in the usual order anyway is not named.
        let usual = order.windows(2).rev().take_while(|pair| pair[0].1 < pair[1].1).count() + 1;
        let named = order.len().saturating_sub(usual);
        order[..named].iter().for_each(|&(_, index)| plan.run(index));
    }
}

pointsman_sdk::export_policy!(Srpt: batch);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, Order, cluster};

    fn srpt(config: &str) -> Harness<Srpt> {
        Harness::new(config, cluster(&[(8, 9000)])).unwrap()
    }

    /// A prompt with so many tokens left.
    fn prompt(pending: u32) -> Ready {
        Ready { prompt: pending, pending, ..Ready::default() }
    }

    fn passed(pending: u32, passed: u32) -> Ready {
        Ready { passed, ..prompt(pending) }
    }

    /// In which order all prompts of a window would run.
    fn order(policy: &mut Harness<Srpt>, window: &[Ready]) -> Vec<usize> {
        let named = policy.step(96, window).into_iter().map(|order| match order {
            Order::Run(index, 0) => index,
            other => panic!("{other:?}"),
        });
        let named: Vec<usize> = named.collect();
        let others = (0..window.len()).filter(|index| !window[*index].decodes() && !named.contains(index));
        named.iter().copied().chain(others).collect()
    }

    #[test]
    fn the_fewest_tokens_left_go_first() {
        assert_eq!(order(&mut srpt(""), &[prompt(900), prompt(30), prompt(200), prompt(1)]), [3, 1, 2, 0]);
    }

    #[test]
    fn what_is_computed_already_does_not_count() {
        // A prompt of 1000 tokens, 990 of which are there, from an earlier micro-batch or from the cache.
        let begun = Ready { prompt: 1000, computed: 990, pending: 10, ..Ready::default() };
        assert_eq!(order(&mut srpt("{}"), &[prompt(11), begun]), [1, 0]);
        assert_eq!(order(&mut srpt("{}"), &[prompt(10), begun]), [0, 1], "of equals the first");
    }

    #[test]
    fn equals_keep_the_usual_order() {
        let window = [prompt(9), prompt(5), prompt(9), prompt(5), prompt(9)];
        assert_eq!(order(&mut srpt(""), &window), [1, 3, 0, 2, 4]);
    }

    #[test]
    fn whoever_was_passed_over_too_often_goes_first() {
        let mut policy = srpt("");
        assert_eq!(order(&mut policy, &[passed(900, 31), prompt(1)]), [1, 0]);
        assert_eq!(order(&mut policy, &[passed(900, 32), prompt(1)]), [0, 1]);
        // Of several the first, however long it has waited or is.
        assert_eq!(order(&mut policy, &[prompt(1), passed(900, 33), passed(300, 60)]), [1, 2, 0]);
        let mut policy = srpt("{\"passed_max\": 1}");
        assert_eq!(order(&mut policy, &[prompt(1), passed(900, 1), prompt(7)]), [1, 0, 2]);
    }

    /// As the host counts: a chunk of 96 tokens in each micro-batch, and always a new short prompt behind the long one.
    #[test]
    fn a_long_prompt_gets_its_chunks_in_time() {
        let mut policy = srpt("{\"passed_max\": 4}");
        let (mut long, mut batches) = (passed(960, 0), 0);
        while long.pending > 0 {
            batches += 1;
            match order(&mut policy, &[long, prompt(96)])[0] {
                0 => (long.pending, long.passed) = (long.pending - 96, 0),
                _ => long.passed += 1,
            }
        }
        // Nine chunks after four others each, and the last is no longer than a short prompt.
        assert_eq!(batches, 9 * 5 + 1);
    }

    #[test]
    fn those_that_decode_are_not_named() {
        let decodes = Ready { prompt: 10, computed: 12, pending: 1, generated: 2, passed: 63, ..Ready::default() };
        let window = [decodes, decodes, prompt(9), prompt(8), prompt(10)];
        assert_eq!(srpt("").step(96, &window), [Order::Run(3, 0)], "and nobody who goes as usual");
        assert_eq!(srpt("").step(96, &window[..2]), []);
    }

    #[test]
    fn names_nobody_where_the_order_is_the_usual_one() {
        let mut policy = srpt("");
        assert_eq!(policy.step(96, &[]), []);
        assert_eq!(policy.step(96, &[prompt(5)]), []);
        assert_eq!(policy.step(96, &[passed(99, 40), prompt(5), prompt(5), prompt(6)]), []);
    }

    #[test]
    fn extreme_values() {
        let mut policy = srpt("{\"passed_max\": 64}");
        let window = [prompt(u32::MAX), prompt(u32::MAX - 1), passed(u32::MAX, u32::MAX), prompt(0)];
        assert_eq!(order(&mut policy, &window[..3]), [2, 1, 0]);
        assert_eq!(policy.step(0, &window[3..]), [], "an empty prompt decodes");
        let window: Vec<Ready> = (1..=256).rev().map(prompt).collect();
        assert_eq!(order(&mut policy, &window), (0..256).rev().collect::<Vec<_>>());
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let refused = |config: &str| Harness::<Srpt>::new(config, cluster(&[])).map(|_| ()).unwrap_err().to_string();
        for value in ["0", "65", "true", "18446744073709551615"] {
            let why = refused(&format!("{{\"passed_max\": {value}}}"));
            assert!(why.contains("\"passed_max\" must be a whole number from 1 to 64"), "{why}");
        }
        assert!(refused("{\"passed-max\": 5}").contains("unknown setting \"passed-max\"; there are: passed_max"));
    }
}
