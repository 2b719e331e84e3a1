//! Answers every window from the fourth on with 1,000 words.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Flood;

impl Hostile for Flood {
    const NAME: &'static str = "window-flood";

    fn step(_ready: &[Ready], plan: &mut Plan) {
        (0..1_000).for_each(|index| plan.run(index));
    }

    fn victims(_idle: &[Idle], victims: &mut Vec<u32>) {
        victims.extend(0..1_000);
    }
}

pointsman_sdk::export_policy!(Guest<Flood>: batch, cache);
