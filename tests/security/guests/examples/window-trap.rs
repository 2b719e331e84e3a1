//! Panics about every window from the fourth on.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Trap;

impl Hostile for Trap {
    const NAME: &'static str = "window-trap";

    fn step(_ready: &[Ready], _plan: &mut Plan) {
        panic!("the fourth step");
    }

    fn victims(_idle: &[Idle], _victims: &mut Vec<u32>) {
        panic!("the fourth shortage");
    }
}

pointsman_sdk::export_policy!(Guest<Trap>: batch, cache);
