//! Never comes back from `init`.

use hostile_guests::{Guest, Hostile, spin};
use pointsman_sdk::InitError;

struct Loop;

impl Hostile for Loop {
    const NAME: &'static str = "loop-in-init";

    fn init() -> Result<(), InitError> {
        spin()
    }
}

pointsman_sdk::export_policy!(Guest<Loop>: route);
