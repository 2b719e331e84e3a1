//! Between what the mean time in the system lies: Theorem 4.
//!
//! Called by [`super::by_bound`] and by policies for their prediction. Requests arrive at random (Poisson) with sizes
//! that are exponential, wait in one queue, and go to the fastest path that is free. If the jobs that are there
//! always ran on the fastest paths, the number of jobs would be a birth-death chain: that is the lower bound. If they
//! always ran on the slowest, the upper one. With one pool both are the queue M/M/c.
//!
//! The weights of the states are products of many ratios. They grow, then fall, so a weight that becomes large is
//! divided by a power of two together with the sums, and what becomes too small for `f64` is too small to matter.
//! This needs neither logarithms nor exponentials, whose last bit differs between machines.

use crate::place::Path;

/// Job places of the same speed: a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// Jobs a second that one place finishes: 1 over the service time.
    pub per_s: f64,
    /// Places.
    pub jobs: u32,
}

impl From<&Path> for Pool {
    /// A time of 0 counts as a nanosecond.
    fn from(path: &Path) -> Self {
        Self { per_s: 1e9 / path.service_ns.max(1) as f64, jobs: path.capacity }
    }
}

/// Theorem 4 for one rate of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Mean number of requests in the system, at least.
    pub jobs_low: f64,
    /// At most.
    pub jobs_high: f64,
    /// Mean time of a request, waiting and service, in seconds, at least.
    pub seconds_low: f64,
    /// At most.
    pub seconds_high: f64,
}

/// Jobs a second that all pools finish together when they are full: equation (4).
#[must_use]
pub fn total_rate(pools: &[Pool]) -> f64 {
    pools.iter().map(|pool| pool.per_s * f64::from(pool.jobs)).sum()
}

/// The bounds for `per_s` requests a second; without any, the limit as they become rare, which is a job alone on the
/// fastest path and on the slowest. None when the pools do not keep up, or a rate is no positive number. O(places).
#[must_use]
pub fn bounds(pools: &[Pool], per_s: f64) -> Option<Bounds> {
    let mut pools: Vec<Pool> = pools.iter().filter(|pool| pool.jobs > 0).copied().collect();
    pools.sort_by(|one, other| other.per_s.total_cmp(&one.per_s));
    let (fastest, slowest) = (pools.first()?.per_s, pools.last()?.per_s);
    let total = total_rate(&pools);
    let usable = slowest > 0.0 && total.is_finite() && per_s >= 0.0 && per_s < total;
    if !usable {
        return None;
    }
    if per_s == 0.0 {
        let (seconds_low, seconds_high) = (1.0 / fastest, 1.0 / slowest);
        return Some(Bounds { jobs_low: 0.0, jobs_high: 0.0, seconds_low, seconds_high });
    }
    let jobs_low = mean_jobs(pools.iter(), per_s, total);
    let jobs_high = mean_jobs(pools.iter().rev(), per_s, total);
    Some(Bounds { jobs_low, jobs_high, seconds_low: jobs_low / per_s, seconds_high: jobs_high / per_s })
}

/// The mean of the birth-death chain in which the places are filled in this order: equations (14) to (18).
fn mean_jobs<'a>(pools: impl Iterator<Item = &'a Pool>, per_s: f64, total: f64) -> f64 {
    // 2^512: a ratio of rates is far below the 2^511 that may follow.
    const LARGE: f64 = f64::from_bits((1023 + 512) << 52);
    let load = per_s / total;
    // State n has weight `weight`; `sum` and `jobs` are of the states before it, those of weight and of n times weight.
    let (mut weight, mut sum, mut jobs, mut n, mut deaths) = (1.0, 0.0, 0.0, 0.0, 0.0);
    for pool in pools {
        for _ in 0..pool.jobs {
            sum += weight;
            jobs += n * weight;
            deaths += pool.per_s;
            weight *= per_s / deaths;
            n += 1.0;
            if weight > LARGE {
                weight /= LARGE;
                sum /= LARGE;
                jobs /= LARGE;
            }
        }
    }
    // All places are taken: from here on the weights fall by `load` each time.
    let queued = weight / (1.0 - load);
    let with_queue = weight * (load / ((1.0 - load) * (1.0 - load)) + n / (1.0 - load));
    (jobs + with_queue) / (sum + queued)
}
