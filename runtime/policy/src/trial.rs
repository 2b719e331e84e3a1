//! The last step before a policy may be swapped in: it is asked each kind of question once, on a made-up view.
//!
//! Runs off the engine's thread on a scratch instance. It finds policies that can not work at all; what goes wrong later is
//! the breaker's business.

use pointsman_engine::decision::{Fault, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Overlap, Pick, Pull, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_engine::window::{Ask, Idle, Kind, Ready, Served};

use crate::exam::scenes::scene;
use crate::host::Descriptor;
use crate::instance::Instance;
use crate::kind::SlotKind;
use crate::place::{no_chains, proposal};
use crate::refuse::{RefuseReason, Stage};
use crate::slot::pulled;

/// Runs `init` and each call of the slot.
///
/// # Errors
/// The first call that faulted, or answered with something that does not decode.
pub(crate) fn run(
    scratch: &mut Instance,
    slot: SlotKind,
    config: &str,
    needs: &Descriptor,
) -> Result<(), RefuseReason> {
    let view = if slot == SlotKind::Place { no_chains() } else { view() };
    scratch.init(config, &view, None).map_err(|fault| RefuseReason::at(Stage::Init, fault.detail))?;
    let answered = match slot {
        SlotKind::Route => route(scratch, needs.needs_overlap),
        SlotKind::Batch => batch(scratch),
        SlotKind::Cache => cache(scratch),
        SlotKind::Place => proposal(scratch, &scene(0, needs.needs_links)).map(drop),
    };
    answered.map_err(|fault| RefuseReason::at(Stage::Trial, fault.detail))
}

fn route(scratch: &mut Instance, needs_overlap: bool) -> Result<(), Fault> {
    const FIRST: ChainId = ChainId(0);
    let (seq, now, rnd) = (1, Micros(1_000), 0x9e37_79b9_7f4a_7c15);
    let (tenant, class, prompt, reserve) = (0, 0, 16, 64);
    scratch.apply(seq, &RouteEvent::Busy(FIRST, 1).words())?;
    let id = RequestId(1);
    let ask = Pick { id, seq, now, rnd, tenant, class, prompt, reserve, deadline: Micros(0), session: 0, hints: 0 };
    let overlap = [Overlap { chain: FIRST, tokens: 8 }.word()];
    RouteDecision::decode(scratch.pick(&ask, needs_overlap.then_some(&overlap))?)?;
    let waiting = Waiting { id, tenant, class, prompt, reserve, waited: Micros(100) };
    pulled(scratch.pull(&Pull { seq, now, rnd, chain: FIRST }, &waiting.words())?, 1)?;
    Ok(())
}

fn batch(scratch: &mut Instance) -> Result<(), Fault> {
    scratch.apply(1, &Served { tenant: 1, prompt_tokens: 16, new_tokens: 3 }.words())?;
    let decoding = Ready {
        id: RequestId(1),
        tenant: 1,
        class: 0,
        prompt: 16,
        reserve: 64,
        computed: 19,
        pending: 1,
        waited: Micros(100),
        deadline: Micros(0),
        generated: 4,
        passed: 0,
    };
    let fresh = Ready { id: RequestId(2), tenant: 2, computed: 0, pending: 16, generated: 0, ..decoding };
    window(scratch, Kind::Step, &[decoding.words(), fresh.words()].concat())
}

fn cache(scratch: &mut Instance) -> Result<(), Fault> {
    let old = Idle { tenant: 1, depth: 64, last_use: 3, hits: 1 };
    let new = Idle { tenant: 2, depth: 32, last_use: 9, hits: 0 };
    window(scratch, Kind::Victims, &[old.words(), new.words()].concat())?;
    // One format, and a choice.
    for offered in [&[1 << 32 | 90][..], &[1 << 32 | 90, 3 << 32 | 50]] {
        scratch.format([1, 0, 16, 64], 500, offered)?;
    }
    Ok(())
}

/// Asks about a window, and checks the answer.
fn window(scratch: &mut Instance, kind: Kind, words: &[u64]) -> Result<(), Fault> {
    let ask = Ask { seq: 1, now: Micros(1_000), rnd: 0x9e37_79b9_7f4a_7c15, chain: ChainId(0), want: 1, have: 0 };
    let mut answer = Vec::new();
    scratch.window(kind, &ask, words, &mut answer)?;
    kind.check(&ask, words.len() / kind.words(), &answer)
}

/// Two chains with room.
fn view() -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 4, busy: 0, free_tokens: 4096, open: true, service: Micros(0) };
    Snapshot { epoch: 0, seq: 0, chains: vec![chain(0), chain(1)], queued: 0 }
}
