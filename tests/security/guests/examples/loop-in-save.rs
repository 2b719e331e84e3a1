//! Loops when it is asked for its state, which is when it is swapped out.

use hostile_guests::{Guest, Hostile, spin};

struct Loop;

impl Hostile for Loop {
    const NAME: &'static str = "loop-in-save";

    fn save() -> Option<Vec<u8>> {
        spin()
    }
}

pointsman_sdk::export_policy!(Guest<Loop>: route);
