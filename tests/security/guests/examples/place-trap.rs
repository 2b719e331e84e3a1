//! Panics instead of planning, except for its trial.

use hostile_guests::place::{Guest, Hostile};
use pointsman_sdk::{Fleet, Model, Outcome};

struct Trap;

impl Hostile for Trap {
    const NAME: &'static str = "place-trap";

    fn propose(_model: &Model, _fleet: &Fleet) -> Outcome {
        panic!("no plan today")
    }
}

pointsman_sdk::export_policy!(Guest<Trap>: place);
