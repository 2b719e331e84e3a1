//! A swap without a trial: are requests slower than before it?
//!
//! The newest times under the old policy are kept, and compared with the first times under the new one, by the test of
//! [`crate::slo`]. Before and after differ by more than the policy, since load changes too; so this is for gross differences,
//! with a wide margin, and ends when as many requests have been seen as are kept of before.

use std::collections::VecDeque;

use crate::limits::{WATCH_REQUESTS_MAX, WATCH_REQUESTS_MIN};
use crate::slo::{Sample, Slo, Trial, Verdict};

/// The newest times of one policy.
#[derive(Default)]
pub(super) struct Recent(VecDeque<Sample>);

/// The comparison of a new policy with the one before it.
pub(super) struct Watch {
    before: VecDeque<Sample>,
    trial: Trial,
}

impl Recent {
    pub fn note(&mut self, sample: Sample) {
        if self.0.len() == WATCH_REQUESTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Begins to compare what follows with what is kept. None if that is too little for any verdict.
    pub fn watch(self, margin: f64) -> Option<Watch> {
        let slo = Slo { margin, requests: u32::MAX };
        (self.0.len() >= WATCH_REQUESTS_MIN).then(|| Watch { before: self.0, trial: Trial::new(slo) })
    }
}

impl Watch {
    /// Requests seen, and how much slower they are so far: ratios of TTFT and TPOT.
    pub fn so_far(&self) -> (u32, f64, f64) {
        self.trial.so_far()
    }

    /// Takes in one request.
    pub fn note(&mut self, sample: Sample) -> Verdict {
        let Some(before) = self.before.pop_front() else { return Verdict::Passed };
        let verdicts = [self.trial.note(false, before), self.trial.note(true, sample)];
        let slower = verdicts.into_iter().find(|verdict| matches!(verdict, Verdict::Slower(_)));
        slower.unwrap_or(Verdict::Open)
    }
}
