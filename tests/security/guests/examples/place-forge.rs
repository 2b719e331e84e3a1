//! Gives the whole model to a server that does not exist.

use hostile_guests::place::{Guest, Hostile};
use pointsman_sdk::{Fleet, Hop, Model, Outcome, Path, Placement, Range, ServerId};

struct Forge;

impl Hostile for Forge {
    const NAME: &'static str = "place-forge";

    fn propose(model: &Model, _fleet: &Fleet) -> Outcome {
        let (server, first_block, blocks) = (ServerId(u32::MAX), 0, model.blocks);
        let path = Path { hops: vec![Hop { server, first_block, blocks }], capacity: 1, service_ns: 0 };
        let range = Range { server, first_block, blocks, slots: u32::MAX };
        Outcome::Replace(Placement { ranges: vec![range], paths: vec![path], ..Placement::default() })
    }
}

pointsman_sdk::export_policy!(Guest<Forge>: place);
