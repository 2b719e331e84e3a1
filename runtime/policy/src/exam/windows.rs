//! Random questions of the slots that are asked with a window.

use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::window::{Ask, Idle, Kind, Ready, Served};

use super::world::World;
use super::{Verdict, faulted};
use crate::instance::Instance;
use crate::record::frame::fingerprint;

/// A question and its window, of any size.
pub fn question(world: &mut World, kind: Kind) -> (Ask, Vec<u64>) {
    let entries = match world.below(20) {
        0 => kind.entries_max() as u32,
        _ => 1 + world.below(20),
    };
    sized(world, kind, entries)
}

/// A question and its window of so many entries.
pub fn sized(world: &mut World, kind: Kind, entries: u32) -> (Ask, Vec<u64>) {
    let (seq, chain) = (world.view.seq, ChainId(world.below(world.view.chains.len() as u32)));
    let window = (0..entries).flat_map(|at| entry(world, kind, at, at < entries * 2 / 5)).collect();
    let (want, have) = match kind {
        Kind::Step => (1 + world.below(256), world.below(3)),
        Kind::Victims => (1 + world.below(80), world.below(9)),
    };
    (Ask { seq, now: Micros(seq * 10), rnd: world.word(), chain, want, have }, window)
}

/// An entry; `decodes` is for those of a step.
fn entry(world: &mut World, kind: Kind, at: u32, decodes: bool) -> Vec<u64> {
    // Now and then an extreme one.
    let wild = world.below(200) == 0;
    let mut below = |bound: u32| if wild { u32::MAX } else { world.below(bound) };
    match kind {
        Kind::Step => {
            let (prompt, generated) = (1 + below(400).min(u32::MAX - 1), 1 + below(50).min(u32::MAX - 1));
            let computed = if decodes { prompt.saturating_add(generated - 1) } else { below(prompt).min(prompt - 1) };
            let ready = Ready {
                id: RequestId(u64::from(at) + 1),
                tenant: below(5),
                class: below(3),
                prompt,
                reserve: prompt.saturating_add(64),
                computed,
                pending: if decodes { 1 } else { prompt - computed },
                waited: Micros(below(10_000_000).into()),
                deadline: Micros(below(2).into()),
                generated: if decodes { generated } else { 0 },
                passed: below(70),
            };
            ready.words().to_vec()
        }
        Kind::Victims => {
            let (tenant, depth, hits) = (below(5), 16 * (1 + below(100).min(u32::MAX / 16 - 1)), below(40).into());
            Idle { tenant, depth, last_use: (at * 3).into(), hits }.words().to_vec()
        }
    }
}

/// What a tenant was served.
pub fn served(world: &mut World) -> Served {
    let wild = world.below(200) == 0;
    let mut below = |bound: u32| if wild { u32::MAX } else { world.below(bound) };
    Served { tenant: below(5), prompt_tokens: below(300), new_tokens: below(20) }
}

/// Asks an instance; the fingerprint of its answer and the fuel that it took.
pub(super) fn ask(live: &mut Instance, world: &mut World, kind: Kind) -> Verdict<(u64, u64)> {
    let (ask, window) = question(world, kind);
    let (mut answer, entries) = (Vec::new(), window.len() / kind.words());
    live.window(kind, &ask, &window, &mut answer).map_err(|fault| faulted(kind.name(), &fault))?;
    kind.check(&ask, entries, &answer).map_err(|fault| faulted(kind.name(), &fault))?;
    let fuel = live.fuel_used();
    if kind == Kind::Victims {
        format(live, world)?;
    }
    Ok((fingerprint(&answer), fuel))
}

/// Asks for the format of a new sequence.
fn format(live: &mut Instance, world: &mut World) -> Verdict<()> {
    let who = [world.below(5), world.below(3), world.below(400), world.below(800)];
    let offered: Vec<u64> =
        (0..1 + world.below(4)).map(|code| u64::from(code) << 32 | (90 / (u64::from(code) + 1))).collect();
    live.format(who, world.below(1001), &offered).map(drop).map_err(|fault| faulted("format", &fault))
}
