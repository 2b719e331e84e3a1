//! Holds the oldest sequence back for ever.

use hostile_guests::windows::{Guest, Hostile};
use pointsman_sdk::{Idle, Plan, Ready};

struct Starve;

impl Hostile for Starve {
    const NAME: &'static str = "window-starve";

    fn step(ready: &[Ready], plan: &mut Plan) {
        let oldest = ready.iter().enumerate().min_by_key(|(_, sequence)| sequence.id);
        if let Some((index, _)) = oldest.filter(|_| ready.len() > 1) {
            plan.hold(index);
        }
    }

    fn victims(_idle: &[Idle], victims: &mut Vec<u32>) {
        victims.push(0);
    }
}

pointsman_sdk::export_policy!(Guest<Starve>: batch, cache);
