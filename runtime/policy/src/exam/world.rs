//! Random histories of a cluster: events, questions, and the view that they lead to.

use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Overlap, Pick, Pull, Waiting};
use pointsman_engine::random;
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};

/// A view that random events change. The same seed gives the same history.
#[derive(Clone, Debug)]
pub struct World {
    /// The view as it is now.
    pub view: Snapshot,
    seed: u64,
    drawn: u64,
}

impl World {
    /// So many chains of random sizes, idle and open.
    #[must_use]
    pub fn new(seed: u64, chains: u32) -> Self {
        let mut world = Self { view: Snapshot { epoch: 0, seq: 0, chains: Vec::new(), queued: 0 }, seed, drawn: 0 };
        let chains = (0..chains).map(|id| ChainView {
            id: ChainId(id),
            capacity: 1 + world.below(8),
            busy: 0,
            free_tokens: world.below(300),
            open: true,
            service: Micros(0),
        });
        world.view.chains = chains.collect();
        world
    }

    /// Random bits.
    pub fn word(&mut self) -> u64 {
        self.drawn += 1;
        random::bits(self.seed, self.drawn)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.word() % u64::from(bound)) as u32
    }

    /// The next change, which the view then has. Now and then it is an extreme one.
    pub fn event(&mut self) -> RouteEvent {
        let at = self.below(self.view.chains.len() as u32);
        let id = ChainId(at);
        let event = match self.below(5) {
            0 => RouteEvent::Queued(self.below(3).saturating_sub(1)),
            1 if self.below(50) == 0 => RouteEvent::FreeTokens(id, u32::MAX),
            1 => RouteEvent::FreeTokens(id, self.below(300)),
            2 => RouteEvent::Open(id, self.below(4) > 0),
            3 if self.below(50) == 0 => RouteEvent::Service(id, Micros(u64::MAX)),
            3 => RouteEvent::Service(id, Micros(self.below(1_000_000).into())),
            _ => {
                let capacity = self.view.chains[at as usize].capacity;
                RouteEvent::Busy(id, self.below(capacity + 1))
            }
        };
        self.view.fold(self.view.seq + 1, [event]);
        event
    }

    /// A question about a new request.
    pub fn pick(&mut self) -> Pick {
        let reserve = if self.below(100) == 0 { u32::MAX } else { 1 + self.below(200) };
        let now = self.view.seq * 10;
        Pick {
            id: RequestId(self.drawn),
            seq: self.view.seq,
            now: Micros(now),
            rnd: self.word(),
            tenant: self.below(3),
            class: self.below(2),
            prompt: reserve / 2,
            reserve,
            deadline: Micros(if self.below(2) == 0 { 0 } else { now + u64::from(self.below(2_000_000)) }),
            session: self.below(9).into(),
            hints: 0,
        }
    }

    /// What the chains hold of that request's prompt.
    pub fn overlap(&mut self, ask: &Pick) -> Vec<Overlap> {
        let mut held = Vec::new();
        for chain in 0..self.view.chains.len() as u32 {
            if self.below(3) == 0 {
                held.push(Overlap { chain: ChainId(chain), tokens: 1 + self.below(ask.prompt.clamp(1, 1000)) });
            }
        }
        held
    }

    /// A question about a chain's room, with up to 64 who wait for it.
    pub fn pull(&mut self) -> (Pull, Vec<Waiting>) {
        let chain = ChainId(self.below(self.view.chains.len() as u32));
        let mut waiting = Vec::new();
        for id in 0..self.below(65) {
            let (tenant, class, reserve) = (self.below(3), self.below(2), 1 + self.below(400));
            let waited = Micros(u64::from(100 - id));
            waiting.push(Waiting {
                id: RequestId(id.into()),
                tenant,
                class,
                prompt: reserve.div_ceil(2),
                reserve,
                waited,
            });
        }
        (Pull { seq: self.view.seq, now: Micros(self.view.seq * 10), rnd: self.word(), chain }, waiting)
    }
}
