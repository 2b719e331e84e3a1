//! Names the first entry twice, from the fourth window on.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Twice;

impl Hostile for Twice {
    const NAME: &'static str = "window-twice";

    fn step(_ready: &[Ready], plan: &mut Plan) {
        plan.run(0);
        plan.hold(0);
    }

    fn victims(_idle: &[Idle], victims: &mut Vec<u32>) {
        victims.extend([0, 0]);
    }
}

pointsman_sdk::export_policy!(Guest<Twice>: batch, cache);
