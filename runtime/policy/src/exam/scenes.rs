//! Random fleets for placement policies.

use pointsman_engine::placement::synth::{self, Scene};

use super::{Property, Report, Verdict, faulted};
use crate::host::Policy;
use crate::place::{Planner, Proposal};
use crate::versions::v0_1::Saved;

/// The scene of a seed, with the links that a policy may have asked for.
#[must_use]
pub fn scene(seed: u64, links: bool) -> Scene {
    let mut scene = synth::scene(seed);
    if links {
        scene.fleet.links = synth::links(seed, &scene.fleet.servers);
    }
    scene
}

/// Asks for a plan, again, and of successors of any kind.
pub(super) fn check(policy: &Policy, seed: u64, report: &mut Report) -> Verdict<()> {
    let scene = scene(seed, policy.descriptor().needs_links);
    let first = ask(policy, None, &scene)?;
    report.questions += 1;
    report.fuel_max = report.fuel_max.max(first.1);
    if ask(policy, None, &scene)? != first {
        return Err((Property::Deterministic, "a second run came out differently".into()));
    }
    for garbage in [Vec::new(), vec![0; 64], vec![0xff; 61]] {
        let saved = Saved { schema: policy.descriptor().state_schema.clone(), seq: 3, bytes: garbage };
        ask(policy, Some(saved), &scene).map_err(|(_, what)| (Property::SurvivesRestarts, what))?;
    }
    Ok(())
}

/// A fresh instance's proposal and the fuel that it took.
fn ask(policy: &Policy, previous: Option<Saved>, scene: &Scene) -> Verdict<(Proposal, u64)> {
    let mut planner = Planner::start(policy, previous).map_err(|fault| faulted("init", &fault))?;
    let proposal = planner.propose(scene).map_err(|fault| faulted("propose", &fault))?;
    let fuel = planner.fuel_used();
    planner.save().map_err(|fault| faulted("save", &fault))?;
    Ok((proposal, fuel))
}
