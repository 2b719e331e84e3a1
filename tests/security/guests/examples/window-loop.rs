//! Loops over every window from the fourth on.

use hostile_guests::spin;
use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Loop;

impl Hostile for Loop {
    const NAME: &'static str = "window-loop";

    fn step(_ready: &[Ready], _plan: &mut Plan) {
        spin();
    }

    fn victims(_idle: &[Idle], _victims: &mut Vec<u32>) {
        spin();
    }
}

pointsman_sdk::export_policy!(Guest<Loop>: batch, cache);
