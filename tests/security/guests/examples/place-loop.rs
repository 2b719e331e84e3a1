//! Looks for a plan for ever, except for its trial.

use hostile_guests::place::{Guest, Hostile};
use hostile_guests::spin;
use pointsman_sdk::{Fleet, Model, Outcome};

struct Loop;

impl Hostile for Loop {
    const NAME: &'static str = "place-loop";

    fn propose(_model: &Model, _fleet: &Fleet) -> Outcome {
        spin()
    }
}

pointsman_sdk::export_policy!(Guest<Loop>: place);
