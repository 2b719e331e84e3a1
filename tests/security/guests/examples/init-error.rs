//! Refuses every configuration.

use hostile_guests::{Guest, Hostile};
use pointsman_sdk::InitError;

struct Refuse;

impl Hostile for Refuse {
    const NAME: &'static str = "init-error";

    fn init() -> Result<(), InitError> {
        Err(InitError::BadConfig("no configuration is good enough".to_owned()))
    }
}

pointsman_sdk::export_policy!(Guest<Refuse>: route);
