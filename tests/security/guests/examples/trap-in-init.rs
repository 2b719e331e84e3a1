//! Panics in `init`.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::InitError;

struct Trap;

impl Hostile for Trap {
    const NAME: &'static str = "trap-in-init";

    fn init() -> Result<(), InitError> {
        panic!("not today")
    }
}

pointsman_sdk::export_policy!(Guest<Trap>: route);
