//! Names entries that the window does not have, from the fourth on.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Forge;

impl Hostile for Forge {
    const NAME: &'static str = "window-forge";

    fn step(ready: &[Ready], plan: &mut Plan) {
        plan.run(ready.len());
    }

    fn victims(idle: &[Idle], victims: &mut Vec<u32>) {
        victims.push(idle.len() as u32);
    }
}

pointsman_sdk::export_policy!(Guest<Forge>: batch, cache);
