//! Deadlines: a request goes to a slow chain if that is fast enough for it, so that fast chains stay free for requests
//! in a hurry; one that can not be answered in time is refused.
//!
//! What a chain promises is an estimate: its service time, plus up to as much again in proportion to its fill. A
//! request goes, in this order, to
//! 1. the slowest chains, by powers of two of the service time, that are done with a quarter of the time left to spare;
//!    of them the one that is done first. A chain of which no time is known is among the slowest and promises anything;
//! 2. the chain that is done first.
//!
//! Refusing must not feed on itself: a time that was measured under load would refuse all that could correct it. So a
//! request without hope is refused only if no idle chain can take it; one that is idle loses nothing by trying.
//!
//! The window of `pull` has no deadlines, so those of queued requests are remembered (`due.rs`).
//! What is known of chains is kept in the order of preference (`keys.rs`).

mod due;
mod keys;

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, Event, InitError, Micros};
use pointsman_sdk::{Overlap, Policy, Pull, Request, RoutePolicy, Waiting, knobs};

use due::{Due, NEVER};
use keys::Keys;

/// Refusal: the deadline had passed when the request arrived.
pub const PASSED: u32 = 1;
/// Refusal: no open chain is fast enough even when idle, and none is idle.
pub const HOPELESS: u32 = 2;

/// Longest default deadline: a day.
const DEFAULT_MS_MAX: u64 = 86_400_000;
/// Above every score of a chain that is sure to be in time.
const UNSURE_SCORE: f64 = 100.0;

/// The policy.
pub struct Slo {
    /// Whether requests that can not be in time are refused.
    shed: bool,
    due: Due,
    keys: Keys,
}

/// What is to be done with a new request, before a chain is chosen.
enum Plan {
    Refuse(u32),
    Wait,
    /// Try the fastest idle chain: it will be late anywhere.
    Try,
    /// Choose a chain for this deadline.
    Place(Micros),
}

/// The order in which chains are preferred; the smallest is the best.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Whether it is not done with a quarter of the time left to spare.
    unsure: bool,
    /// 0 for the slowest; the same for all that are unsure.
    speed: u32,
    estimate: Micros,
}

/// Expected time of a job that joins the chain: from once its service time when idle to twice when full. While no time
/// is known, next to nothing, and less on the emptier chain.
fn estimate(chain: &Chain) -> Micros {
    let each = chain.service().checked_div(chain.capacity().into()).unwrap_or(0);
    let load = each.saturating_mul(chain.busy().into());
    if chain.service() == 0 { chain.busy().into() } else { chain.service().saturating_add(load) }
}

/// The power of two below the service time, the slowest first: 0 for an unknown time, else from 1 to 64.
fn speed(chain: &Chain) -> u32 {
    chain.service().checked_ilog2().map_or(0, |power| Micros::BITS - power)
}

/// The largest estimate that leaves a quarter of the time to spare.
fn limit(left: Micros) -> Micros {
    left - left / 4
}

fn rank(chain: &Chain, left: Micros) -> Rank {
    let estimate = estimate(chain);
    let unsure = estimate > limit(left);
    Rank { unsure, speed: if unsure { 0 } else { speed(chain) }, estimate }
}

/// [`Rank`] as one number.
fn score(chain: &Chain, left: Micros) -> f64 {
    let Rank { unsure, speed, estimate } = rank(chain, left);
    match (unsure, speed) {
        (true, _) => UNSURE_SCORE + estimate as f64,
        (false, 0) => estimate as f64 / f64::from(u32::MAX),
        // The estimate is below four times the power of two.
        (false, speed) => f64::from(speed) + estimate as f64 / 2_f64.powi((Micros::BITS - speed) as i32 + 2),
    }
}

fn fitting(reserve: u32, cluster: &Cluster) -> impl Iterator<Item = &Chain> {
    cluster.chains().iter().filter(move |chain| chain.fits(reserve))
}

fn fitting_idle(reserve: u32, cluster: &Cluster) -> impl Iterator<Item = &Chain> {
    fitting(reserve, cluster).filter(|chain| chain.busy() == 0)
}

/// Whether no open chain is known to be, or may be, fast enough.
fn is_hopeless(now: Micros, due: Micros, cluster: &Cluster) -> bool {
    let mut open = cluster.chains().iter().filter(|chain| chain.is_open()).peekable();
    open.peek().is_some() && open.all(|chain| chain.service() > 0 && now.saturating_add(chain.service()) > due)
}

impl Slo {
    fn plan(&self, ask: &Request, cluster: &Cluster) -> Plan {
        let due = self.due.of_request(ask);
        if self.shed && due <= ask.now {
            return Plan::Refuse(PASSED);
        }
        let hopeless = self.shed && is_hopeless(ask.now, due, cluster);
        if hopeless && fitting_idle(ask.reserve, cluster).next().is_none() {
            return Plan::Refuse(HOPELESS);
        }
        // Whoever comes while others wait, waits with them.
        match (cluster.queued(), hopeless) {
            (1.., _) => Plan::Wait,
            (0, true) => Plan::Try,
            (0, false) => Plan::Place(due),
        }
    }
}

impl Policy for Slo {
    const NAME: &str = "route-slo";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// The remembered deadlines, laid out as `Due::save` says.
    const STATE_SCHEMA: &str = "route-slo/deadlines/1";

    fn init(config: &str, cluster: &Cluster) -> Result<Self, InitError> {
        let knobs = knobs(config, &["default_ms", "shed"])?;
        let default_ms = knobs.number("default_ms", 0..=DEFAULT_MS_MAX, 0)?;
        let shed = knobs.switch("shed", true)?;
        Ok(Self { shed, due: Due::new(default_ms * 1000), keys: Keys::new(cluster) })
    }

    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        if schema == Self::STATE_SCHEMA {
            self.due.restore(bytes);
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(self.due.save())
    }
}

impl RoutePolicy for Slo {
    fn on_event(&mut self, event: Event, cluster: &Cluster) {
        self.keys.update(event, cluster);
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        let choice = match self.plan(ask, cluster) {
            Plan::Refuse(code) => return Decision::Reject(code),
            Plan::Wait => None,
            // Of equals the first, here and below.
            Plan::Try => fitting_idle(ask.reserve, cluster).min_by_key(|chain| chain.service()),
            Plan::Place(due) => {
                let left = due.saturating_sub(ask.now);
                if self.keys.are_exact() {
                    self.keys.best(ask.reserve, limit(left), cluster)
                } else {
                    fitting(ask.reserve, cluster).min_by_key(|chain| rank(chain, left))
                }
            }
        };
        match choice {
            Some(chain) => Decision::Dispatch(chain.id()),
            None => {
                self.due.remember(ask, cluster.queued());
                Decision::Queue
            }
        }
    }

    /// Below 100 for chains that are sure to be in time: the speed class (the slowest is 0) and, as a fraction, the
    /// estimate. For the others 100 and the estimate in microseconds. For a request without hope, the service times of
    /// the idle chains. Of equal scores the first named is taken.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let scored = |chain: &Chain, score| Candidate { chain: chain.id(), score };
        match self.plan(ask, cluster) {
            Plan::Refuse(_) | Plan::Wait => Vec::new(),
            Plan::Try => fitting_idle(ask.reserve, cluster).map(|it| scored(it, it.service() as f64)).collect(),
            Plan::Place(due) => {
                let left = due.saturating_sub(ask.now);
                fitting(ask.reserve, cluster).map(|chain| scored(chain, score(chain, left))).collect()
            }
        }
    }

    /// The earliest deadline of those that this chain can still make; after them the others in order of arrival.
    fn pull(&mut self, ask: &Pull, waiting: &[Waiting], cluster: &Cluster) -> Option<usize> {
        let chain = cluster.chain(ask.chain)?;
        let done = ask.now.saturating_add(estimate(chain));
        self.due.forget_before(ask.now, waiting.first()?);
        let fitting = waiting.iter().enumerate().filter(|(_, request)| chain.fits(request.reserve));
        let urgent = fitting.min_by_key(|(_, request)| {
            let due = self.due.of_waiting(ask.now, request);
            if done <= due { due } else { NEVER }
        });
        urgent.map(|(index, _)| index)
    }
}

pointsman_sdk::export_policy!(Slo: route);

#[cfg(test)]
mod tests;
