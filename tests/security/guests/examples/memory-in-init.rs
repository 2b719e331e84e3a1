//! Allocates without end in `init`.

use hostile_guests::{Guest, Hostile, eat_memory};
use pointsman_sdk::InitError;

struct Memory;

impl Hostile for Memory {
    const NAME: &'static str = "memory-in-init";

    fn init() -> Result<(), InitError> {
        eat_memory()
    }
}

pointsman_sdk::export_policy!(Guest<Memory>: route);
