//! First come, first served: every micro-batch goes its usual way.
//!
//! Decides exactly as the host does without a policy, so that either can stand in for the other: all that decode, then
//! prompts in order of dispatch. What is measured with it is what asking a policy costs.

use pointsman_sdk::{BatchPolicy, Cluster, InitError, Plan, Policy, Ready, Step, no_knobs};

/// The policy. It has no memory and no opinion.
pub struct Fcfs;

impl Policy for Fcfs {
    const NAME: &str = "batch-fcfs";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self)
    }
}

impl BatchPolicy for Fcfs {
    /// Names nobody: an answer holds exceptions only.
    fn step(&mut self, _ask: &Step, _ready: &[Ready], _plan: &mut Plan) {}
}

pointsman_sdk::export_policy!(Fcfs: batch);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster};

    #[test]
    fn names_nobody() {
        let mut policy = Harness::<Fcfs>::new("{}", cluster(&[(4, 100)])).unwrap();
        let decodes = Ready { prompt: 5, computed: 5, pending: 1, ..Ready::default() };
        let late = Ready { class: u32::MAX, prompt: 9, pending: 9, passed: 63, waited: u64::MAX, ..Ready::default() };
        let early = Ready { prompt: u32::MAX, pending: u32::MAX, ..Ready::default() };
        assert_eq!(policy.step(96, &[decodes, early, late]), []);
        assert_eq!(policy.step(0, &[late]), []);
        assert_eq!(policy.step(96, &[]), []);
    }

    #[test]
    fn what_was_served_changes_nothing() {
        let mut policy = Harness::<Fcfs>::new("", cluster(&[])).unwrap();
        policy.served(u32::MAX, u32::MAX, u32::MAX);
        assert_eq!(policy.save(), None);
        assert_eq!(policy.step(96, &[Ready { prompt: 1, pending: 1, ..Ready::default() }]), []);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<Fcfs>::new("{\"age_ms\": 2}", cluster(&[])).is_err());
    }
}
