//! Checks every answer of a policy against the host's tables. A bad policy can choose badly, and no more than that.
//!
//! Called by [`crate::yard::dispatch`] with each answer; a refusal is a [`FaultClass::Invalid`] fault that says what was
//! wrong, and makes the builtin decide. There is no trusted policy.

use crate::decision::{Fault, FaultClass, RouteDecision};
use crate::ids::ChainId;
use crate::port::Waiting;
use crate::yard::chains::{Chain, Chains};

/// May a request of `reserve` tokens be treated like this? A policy can not know that the queue is full, so to queue is always
/// allowed.
pub(crate) fn pick(chains: &Chains, reserve: u32, answer: RouteDecision) -> Result<(), Fault> {
    match answer {
        RouteDecision::Dispatch(chain) => room(existing(chains, chain)?, reserve),
        RouteDecision::Queue | RouteDecision::Defer(_) | RouteDecision::Reject(_) => Ok(()),
    }
}

/// May the request at this index of the window take the room on `chain`? Taking none is always allowed.
pub(crate) fn pull(chains: &Chains, chain: ChainId, window: &[Waiting], answer: Option<u32>) -> Result<(), Fault> {
    let Some(index) = answer else { return Ok(()) };
    match window.get(index as usize) {
        Some(waiting) => room(existing(chains, chain)?, waiting.reserve),
        None => Err(invalid(format!("request {index} of a window of {} does not exist", window.len()))),
    }
}

fn existing(chains: &Chains, chain: ChainId) -> Result<&Chain, Fault> {
    chains.get(chain).ok_or_else(|| invalid(format!("chain {} does not exist", chain.0)))
}

fn room(chain: &Chain, reserve: u32) -> Result<(), Fault> {
    let (id, busy, free) = (chain.id.0, chain.line.busy(), chain.line.kv().free_tokens());
    if chain.takes(reserve) {
        Ok(())
    } else if !chain.open {
        Err(invalid(format!("chain {id} is closed")))
    } else if busy >= chain.jobs_max {
        Err(invalid(format!("chain {id} runs {busy} jobs of at most {}", chain.jobs_max)))
    } else {
        Err(invalid(format!("chain {id} has {free} free tokens, but the request reserves {reserve}")))
    }
}

fn invalid(detail: String) -> Fault {
    Fault::new(FaultClass::Invalid, detail)
}
