//! The smallest honest policy for the `batch` slot, and a tour of it. Copy this folder and change `step`.
//!
//! What a policy may rely on:
//! 1. `step` is asked before each micro-batch of a chain, with all sequences that are ready there. Those that decode stand first;
//!    each group is in the order in which the host would take it.
//! 2. Who is named by `run` comes first, in that order, as far as the budget of prompt tokens goes; who is not named follows as
//!    usual; who is on `hold` is left out. An empty plan is what the host does by itself.
//! 3. Nothing that is answered changes a sequence's tokens, only when they come. Memory is reserved: nobody is thrown out.
//! 4. Name nobody twice, nothing that is not in the window, and do not hold everything back while nothing is in flight: that is a
//!    fault, and the host decides. A sequence that is passed over 64 times in a row is run by the host.
//!
//! What a policy can not have: a clock (use `ask.now`), randomness (use `ask.rnd`), files, sockets, threads.

use pointsman_sdk::{BatchPolicy, Cluster, InitError, Plan, Policy, Ready, Served, Step, no_knobs};

/// Prompts that are nearly through go first.
///
/// State that you keep between calls goes into this struct.
pub struct NearlyDone;

impl Policy for NearlyDone {
    const NAME: &str = "policy-template";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Reads the configuration and makes the policy. One with settings parses `config` here and refuses unknown keys.
    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
    // Also optional: `STATE_SCHEMA`, `save` and `restore` hand state over to the next version; batch-fair does. `METRICS` declares
    // figures of your own for the server's metrics, which `count` and `gauge` write; `dump` shows your state.
}

impl BatchPolicy for NearlyDone {
    /// The one decision that you must make.
    fn step(&mut self, ask: &Step, ready: &[Ready], plan: &mut Plan) {
        let prompts = ready.iter().enumerate().filter(|(_, sequence)| !sequence.decodes());
        for (index, _) in prompts.filter(|(_, sequence)| sequence.pending <= ask.token_budget) {
            plan.run(index);
        }
    }

    /// Optional: what was really served, also by the host in your place. For policies that keep accounts.
    fn on_served(&mut self, _served: Served) {}
}

pointsman_sdk::export_policy!(NearlyDone: batch);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, Order};

    #[test]
    fn prompts_that_fit_go_first() {
        let mut policy = Harness::<NearlyDone>::new("", Cluster::new(1, 0, Vec::new(), 0)).unwrap();
        let prompt = |pending| Ready { prompt: 100, computed: 100 - pending, pending, ..Ready::default() };
        let decoding = Ready { prompt: 5, computed: 9, pending: 1, ..Ready::default() };
        let plan = policy.step(64, &[decoding, prompt(100), prompt(30), prompt(64)]);
        assert_eq!(plan, [Order::Run(2, 0), Order::Run(3, 0)]);
    }
}
