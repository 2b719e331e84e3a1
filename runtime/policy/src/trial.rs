//! The last step before a policy may be swapped in: it is asked each kind of question once, on a made-up view.
//!
//! Runs off the engine's thread on a scratch instance. It finds policies that can not work at all; what goes wrong later is
//! the breaker's business.

use pointsman_engine::decision::{Fault, RouteDecision};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Overlap, Pick, Pull, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};

use crate::instance::Instance;
use crate::refuse::{RefuseReason, Stage};
use crate::slot::pulled;

/// Runs `init`, `apply`, `pick` and `pull`.
///
/// # Errors
/// The first call that faulted, or answered with something that does not decode.
pub(crate) fn run(scratch: &mut Instance, config: &str, needs_overlap: bool) -> Result<(), RefuseReason> {
    scratch.init(config, &view(), None).map_err(|fault| RefuseReason::at(Stage::Init, fault.detail))?;
    questions(scratch, needs_overlap).map_err(|fault| RefuseReason::at(Stage::Trial, fault.detail))
}

fn questions(scratch: &mut Instance, needs_overlap: bool) -> Result<(), Fault> {
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

/// Two chains with room.
fn view() -> Snapshot {
    let chain =
        |id| ChainView { id: ChainId(id), capacity: 4, busy: 0, free_tokens: 4096, open: true, service: Micros(0) };
    Snapshot { epoch: 0, seq: 0, chains: vec![chain(0), chain(1)], queued: 0 }
}
