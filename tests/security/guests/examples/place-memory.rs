//! Allocates without end instead of planning, except for its trial.

use hostile_guests::eat_memory;
use hostile_guests::place::{Guest, Hostile};
use pointsman_sdk::{Fleet, Model, Outcome};

struct Memory;

impl Hostile for Memory {
    const NAME: &'static str = "place-memory";

    fn propose(_model: &Model, _fleet: &Fleet) -> Outcome {
        eat_memory()
    }
}

pointsman_sdk::export_policy!(Guest<Memory>: place);
