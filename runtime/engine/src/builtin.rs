//! The native rules: they decide when there is no policy, and in place of one that fails.
//!
//! Arrivals go to the open chain with room that runs the fewest jobs (join the shortest queue, with one central queue
//! instead of one per chain), the lowest id on ties; if none has room, or others wait already, they wait. Room goes to the
//! longest waiting request that fits. Both rules are plain functions of what a policy sees too, so that [`Builtin`], the
//! same rules as a [`RoutePolicy`] of its own, decides alike; it is also the reference for the same policy in Wasm.
//!
//! The other slots' rules are shorter: a micro-batch takes those that are ready in turn, as `crate::line` does by itself, and
//! what leaves the prefix cache is the least recently used ([`victims`]).

use crate::decision::{Fault, FaultClass, RouteDecision};
use crate::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use crate::snapshot::{ChainView, RouteEvent, Snapshot};

/// Where a new request of `reserve` tokens goes while `queued` others wait. Never refuses and never defers.
pub fn arrive(chains: impl Iterator<Item = ChainView>, queued: u32, reserve: u32) -> RouteDecision {
    // Whoever comes while others wait, waits behind them: a small request must not overtake for ever.
    if queued > 0 { RouteDecision::Queue } else { pick(chains, reserve) }
}

/// The chain for a request of `reserve` tokens whose turn it is.
pub fn pick(chains: impl Iterator<Item = ChainView>, reserve: u32) -> RouteDecision {
    let shortest = chains.filter(|chain| chain.takes(reserve)).map(|chain| (chain.busy, chain.id)).min();
    shortest.map_or(RouteDecision::Queue, |(_, chain)| RouteDecision::Dispatch(chain))
}

/// Which of `waiting` takes the room on `chain`.
#[must_use]
pub fn pull(chain: &ChainView, waiting: &[Waiting]) -> Option<u32> {
    waiting.iter().position(|job| chain.takes(job.reserve)).map(|index| index as u32)
}

/// Which of so many ends of idle chains, the least recently used first, are evicted so that `need` blocks become free: indices,
/// the first to go first. The least recently used go first.
pub fn victims(window: usize, need: u32) -> impl Iterator<Item = u32> {
    (0..window as u32).take(need.max(1) as usize)
}

/// The builtin rules behind the interface of a policy, with a view of their own.
#[derive(Debug, Default)]
pub struct Builtin {
    view: Option<Snapshot>,
}

impl Builtin {
    fn view(&mut self) -> Result<&mut Snapshot, Fault> {
        self.view.as_mut().ok_or_else(|| Fault::new(FaultClass::Init, "asked before init"))
    }
}

impl RoutePolicy for Builtin {
    fn wants_snapshot(&self) -> bool {
        self.view.is_none()
    }

    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault> {
        self.view = Some(snapshot.clone());
        Ok(())
    }

    fn apply(&mut self, seq: u64, events: &[RouteEvent]) -> Result<(), Fault> {
        self.view()?.fold(seq, events.iter().copied());
        Ok(())
    }

    fn pick(&mut self, ask: &Pick, _overlap: &[Overlap]) -> Result<RouteDecision, Fault> {
        let view = self.view()?;
        Ok(arrive(view.chains.iter().copied(), view.queued, ask.reserve))
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting]) -> Result<Option<u32>, Fault> {
        Ok(self.view()?.chains.get(ask.chain.0 as usize).and_then(|chain| pull(chain, waiting)))
    }

    fn refused(&mut self, _why: &Fault) {
        // It reads the same tables as the guard; a stale view is the only way here, and the next question renews it.
        self.view = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ChainId, Micros};

    fn chain(id: u32, busy: u32, capacity: u32, free_tokens: u32) -> ChainView {
        ChainView { id: ChainId(id), capacity, busy, free_tokens, open: true, service: Micros(0) }
    }

    #[test]
    fn joins_the_chain_with_the_fewest_jobs() {
        let picks = |chains: &[ChainView], reserve| arrive(chains.iter().copied(), 0, reserve);
        assert_eq!(picks(&[chain(0, 3, 8, 99), chain(1, 2, 4, 99)], 10), RouteDecision::Dispatch(ChainId(1)));
        // Ties go to the lowest id.
        assert_eq!(picks(&[chain(0, 1, 4, 99), chain(1, 1, 8, 99)], 10), RouteDecision::Dispatch(ChainId(0)));
        // Nobody overtakes those who wait.
        assert_eq!(arrive([chain(0, 0, 4, 99)].into_iter(), 1, 10), RouteDecision::Queue);
        // A chain that is full, short of blocks or closed does not count.
        assert_eq!(picks(&[chain(0, 4, 4, 99), chain(1, 7, 8, 99)], 10), RouteDecision::Dispatch(ChainId(1)));
        assert_eq!(picks(&[chain(0, 0, 4, 9), chain(1, 7, 8, 10)], 10), RouteDecision::Dispatch(ChainId(1)));
        let closed = ChainView { open: false, ..chain(0, 0, 4, 99) };
        assert_eq!(picks(&[closed, chain(1, 7, 8, 99)], 10), RouteDecision::Dispatch(ChainId(1)));
        assert_eq!(picks(&[closed, chain(1, 8, 8, 99)], 10), RouteDecision::Queue);
    }

    #[test]
    fn evicts_the_least_recently_used() {
        assert_eq!(victims(3, 2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(victims(3, 9).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn pulls_the_longest_waiting_request_that_fits() {
        let waiting = |reserve| Waiting {
            id: crate::ids::RequestId(0),
            tenant: 0,
            class: 0,
            prompt: 1,
            reserve,
            waited: Micros(0),
        };
        let window = [waiting(50), waiting(10), waiting(20)];
        assert_eq!(pull(&chain(0, 0, 1, 60), &window), Some(0));
        assert_eq!(pull(&chain(0, 0, 1, 30), &window), Some(1));
        assert_eq!(pull(&chain(0, 0, 1, 9), &window), None);
        assert_eq!(pull(&chain(0, 1, 1, 60), &window), None);
    }
}
