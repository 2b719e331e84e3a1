//! Gives the whole model to every server, whatever its memory, with more jobs than it reserves for.

use hostile_guests::place::{Guest, Hostile};
use pointsman_sdk::{Fleet, Hop, Model, Outcome, Path, Placement, Range};

struct Greedy;

impl Hostile for Greedy {
    const NAME: &'static str = "place-greedy";

    fn propose(model: &Model, fleet: &Fleet) -> Outcome {
        let mut plan = Placement::default();
        for server in &fleet.servers {
            let (server, first_block, blocks) = (server.id, 0, model.blocks);
            plan.ranges.push(Range { server, first_block, blocks, slots: 1 });
            plan.paths.push(Path { hops: vec![Hop { server, first_block, blocks }], capacity: 256, service_ns: 0 });
        }
        Outcome::Replace(plan)
    }
}

pointsman_sdk::export_policy!(Guest<Greedy>: place);
