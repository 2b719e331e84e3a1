//! From the fourth window on it holds everything back, and gives nothing up.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Hold;

impl Hostile for Hold {
    const NAME: &'static str = "window-hold";

    fn step(ready: &[Ready], plan: &mut Plan) {
        (0..ready.len()).for_each(|index| plan.hold(index));
    }

    fn victims(idle: &[Idle], victims: &mut Vec<u32>) {
        let _ = (idle, victims);
    }
}

pointsman_sdk::export_policy!(Guest<Hold>: batch, cache);
