//! What the hostile guests have in common: each is an honest policy except in the one way that its file shows.
//!
//! A guest implements [`Hostile`] and overrides the method in which it misbehaves. [`Guest`] makes a policy of it; the
//! count of picks is part of the instance, so a fresh instance is honest again for as long.

pub mod place;
pub mod windows;

use std::marker::PhantomData;

use pointsman_sdk::{Chain, Cluster, Decision, InitError, Policy, Pull, Request, RoutePolicy, Waiting};

/// A guest that is honest by default.
pub trait Hostile {
    /// The name of the guest, which is that of its file.
    const NAME: &'static str;

    /// Called once, in `init`.
    fn init() -> Result<(), InitError> {
        Ok(())
    }

    /// The `nth` pick of this instance, counted from 1.
    fn pick(nth: u32, ask: &Request, cluster: &Cluster) -> Decision {
        let _ = nth;
        shortest_queue(ask, cluster)
    }

    /// Which of `waiting` takes the room.
    fn pull(ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        let chain = cluster.chain(ask.chain)?;
        waiting.iter().position(|request| chain.fits(request.reserve))
    }

    /// What `save` returns.
    fn save() -> Option<Vec<u8>> {
        None
    }
}

/// Joins the shortest queue, as the builtin does.
pub fn shortest_queue(ask: &Request, cluster: &Cluster) -> Decision {
    if cluster.queued() > 0 {
        return Decision::Queue;
    }
    let shortest = cluster.best_fit(ask.reserve, Chain::busy);
    shortest.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
}

/// A hostile guest as a policy.
pub struct Guest<H> {
    picks: u32,
    hostile: PhantomData<H>,
}

impl<H: Hostile> Policy for Guest<H> {
    const NAME: &'static str = H::NAME;
    const VERSION: &'static str = "0.1.0";
    const STATE_SCHEMA: &'static str = "hostile/1";

    fn init(_config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        H::init().map(|()| Self { picks: 0, hostile: PhantomData })
    }

    fn save(&self) -> Option<Vec<u8>> {
        H::save()
    }
}

impl<H: Hostile> RoutePolicy for Guest<H> {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        self.picks += 1;
        H::pick(self.picks, ask, cluster)
    }

    fn pull(&mut self, ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        H::pull(ask, waiting, cluster)
    }
}

/// Allocates, a MiB at a time, and never stops.
pub fn eat_memory() -> ! {
    loop {
        std::mem::forget(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
    }
}

/// Never returns.
pub fn spin() -> ! {
    loop {
        std::hint::black_box(());
    }
}
