//! Is the challenger slower? A sequential test on time to first token and time per output token, request by request.
//!
//! Requests are drawn to the two arms at random, so both see the same hours and the same load. The logarithms of their times are
//! compared in batches: the difference of the arms' means over a batch of eight challengers and the incumbents beside them.
//! Batches wash out most of the correlation between neighbours, and logarithms make a difference a ratio.
//!
//! The test may be looked at after every request: the boundary is that of a normal mixture (Robbins 1970; Howard et al. 2021,
//! "Time-uniform, nonparametric, nonasymptotic confidence sequences"), crossed with a probability of at most
//! 1 in 400 at *any* time when the challenger is slower by no more than the margin. The variance is estimated along the way,
//! which makes that probability approximate; a test with a thousand trials of equal arms holds it.

/// What is tolerated, and for how long it is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// The challenger may be slower by this fraction; 0.05 is 5 %.
    pub margin: f64,
    /// Requests of the challenger after which it counts as no slower; at least 64 are compared in any case.
    pub requests: u32,
}

impl Default for Slo {
    fn default() -> Self {
        Self { margin: 0.05, requests: 2_000 }
    }
}

/// Times of one finished request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// From arrival to the first token, in microseconds.
    pub ttft_micros: u64,
    /// Between later tokens on average, in microseconds; none for a request of one token.
    pub tpot_micros: Option<u64>,
}

/// What is known so far.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// More requests are needed.
    Open,
    /// As many requests as were asked for, and no difference beyond the margin was found.
    Passed,
    /// Slower beyond the margin: what and how much.
    Slower(String),
}

/// Challengers in a batch.
const BATCH: u32 = 8;
/// Batches before the first verdict, so that the variance is known a little.
const BATCHES_MIN: f64 = 8.0;
/// Probability of a false verdict, each for the two times.
const ALPHA: f64 = 0.0025;
/// Number of batches at which the boundary is tightest.
const TUNED_FOR: f64 = 64.0;

/// The comparison of one trial.
#[derive(Clone, Debug)]
pub struct Trial {
    slo: Slo,
    ttft: Comparison,
    tpot: Comparison,
    seen: u32,
}

impl Trial {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(slo: Slo) -> Self {
        Self { slo, ttft: Comparison::default(), tpot: Comparison::default(), seen: 0 }
    }

    /// Challenger requests seen, and how much slower the challenger is so far: ratios of TTFT and TPOT, 1 being equal.
    #[must_use]
    pub fn so_far(&self) -> (u32, f64, f64) {
        (self.seen, self.ttft.mean.exp(), self.tpot.mean.exp())
    }

    /// Takes in one request.
    pub fn note(&mut self, challenger: bool, sample: Sample) -> Verdict {
        self.seen += u32::from(challenger);
        let margin = self.slo.margin.ln_1p();
        let times = [
            ("time to first token", &mut self.ttft, Some(sample.ttft_micros)),
            ("time per output token", &mut self.tpot, sample.tpot_micros),
        ];
        for (name, comparison, micros) in times {
            let Some(micros) = micros else { continue };
            if comparison.note(challenger, (micros.max(1) as f64).ln()) && comparison.exceeds(margin) {
                let (slower, n) = (100.0 * (comparison.mean.exp() - 1.0), self.seen);
                return Verdict::Slower(format!("its {name} is {slower:.0} % longer over {n} requests"));
            }
        }
        let known = self.ttft.batches >= BATCHES_MIN;
        if self.seen >= self.slo.requests && known { Verdict::Passed } else { Verdict::Open }
    }
}

/// Differences of batch means: count, mean, and sum of squares about it (Welford).
#[derive(Clone, Debug, Default)]
struct Comparison {
    batches: f64,
    mean: f64,
    squares: f64,
    /// Sum and count of the batch at hand: incumbent, challenger.
    sums: [(f64, u32); 2],
}

impl Comparison {
    /// Takes in one value; true when that completes a batch.
    fn note(&mut self, challenger: bool, value: f64) -> bool {
        let (sum, count) = &mut self.sums[usize::from(challenger)];
        *sum += value;
        *count += 1;
        if self.sums.iter().any(|(_, count)| *count < BATCH) {
            return false;
        }
        let [incumbent, challenger] = std::mem::take(&mut self.sums).map(|(sum, count)| sum / f64::from(count));
        let difference = challenger - incumbent;
        self.batches += 1.0;
        let before = difference - self.mean;
        self.mean += before / self.batches;
        self.squares += before * (difference - self.mean);
        true
    }

    /// Whether the mean difference is beyond `margin` for certain.
    fn exceeds(&self, margin: f64) -> bool {
        if self.batches < BATCHES_MIN {
            return false;
        }
        let variance = self.squares / (self.batches - 1.0);
        let (intrinsic, rho) = (variance * self.batches, variance * TUNED_FOR);
        let width = ((intrinsic + rho) * (((intrinsic + rho) / rho).ln() + 2.0 * (1.0 / ALPHA).ln())).sqrt();
        (self.mean - margin) * self.batches > width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_engine::random::bits;

    /// A number in 0..1.
    fn uniform(seed: u64, n: u64) -> f64 {
        (bits(seed, n) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Runs a trial with half of the requests on each arm and times that vary by a factor of about 2 up and down (log-normal,
    /// sigma 0.7), with a load that drifts slowly for both. Returns the verdict and how many challengers were seen.
    fn run(seed: u64, slower: f64) -> (Verdict, u32) {
        let mut trial = Trial::new(Slo::default());
        for n in 0.. {
            let normal = (-2.0 * uniform(seed, 3 * n).max(1e-12).ln()).sqrt()
                * (std::f64::consts::TAU * uniform(seed, 3 * n + 1)).cos();
            let challenger = bits(seed, 3 * n + 2).is_multiple_of(2);
            let load = 0.5 * (n as f64 / 300.0).sin();
            let factor = if challenger { slower } else { 1.0 };
            let ttft = 100_000.0 * (0.7 * normal + load).exp() * factor;
            let sample =
                Sample { ttft_micros: ttft as u64, tpot_micros: Some(20_000 + (1000.0 * normal.abs()) as u64) };
            match trial.note(challenger, sample) {
                Verdict::Open => {}
                verdict => return (verdict, trial.so_far().0),
            }
        }
        unreachable!("the trial ends after its requests")
    }

    #[test]
    fn equal_arms_are_rolled_back_less_than_once_in_a_hundred() {
        let slower = (0..1_000).filter(|seed| matches!(run(*seed, 1.0).0, Verdict::Slower(_))).count();
        assert!(slower < 10, "{slower} of 1000");
    }

    #[test]
    fn a_challenger_that_is_a_fifth_slower_is_found() {
        let verdicts: Vec<_> = (0..200).map(|seed| run(seed, 1.2)).collect();
        let found = verdicts.iter().filter(|(verdict, _)| matches!(verdict, Verdict::Slower(_))).count();
        assert!(found >= 190, "{found} of 200");
        let why = verdicts.iter().find_map(|(verdict, _)| match verdict {
            Verdict::Slower(why) => Some(why.clone()),
            _ => None,
        });
        assert!(why.is_some_and(|why| why.contains("time to first token is")));
    }

    #[test]
    fn a_gross_difference_is_found_at_once() {
        let (verdict, requests) = run(1, 4.0);
        assert!(matches!(verdict, Verdict::Slower(_)) && requests < 150, "{verdict:?} after {requests}");
    }
}
