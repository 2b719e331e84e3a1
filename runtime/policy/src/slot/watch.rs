//! A swap without a trial: are requests slower than before it?
//!
//! The newest times under the old policy are kept, and compared with the first times under the new one, by the test of
//! [`crate::slo`]. Before and after differ by more than the policy, since load changes too; so this is for gross differences,
//! with a wide margin, and ends when as many requests have been seen as are kept of before.

use std::collections::VecDeque;

use crate::limits::WATCH_REQUESTS_MAX;
use crate::slo::{Sample, Slo, Trial, Verdict};

/// The newest times of one policy.
#[derive(Default)]
pub(super) struct Recent(VecDeque<Sample>);

/// The comparison of a new policy with the one before it.
pub(super) struct Watch {
    before: VecDeque<Sample>,
    trial: Trial,
    /// Requests with a lower number had been decided when the new policy came; none until it is known.
    since: Option<u64>,
}

impl Recent {
    pub fn note(&mut self, sample: Sample) {
        if self.0.len() == WATCH_REQUESTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Begins to compare what follows with what is kept.
    pub fn watch(self, margin: f64) -> Watch {
        let slo = Slo { margin, requests: u32::MAX };
        Watch { before: self.0, trial: Trial::new(slo), since: None }
    }
}

impl Watch {
    /// Takes in one request; `next` is the number that the next new request will have.
    pub fn note(&mut self, request: u64, next: u64, sample: Sample) -> Verdict {
        if request < *self.since.get_or_insert(next) {
            return Verdict::Open;
        }
        let Some(before) = self.before.pop_front() else { return Verdict::Passed };
        let verdicts = [self.trial.note(false, before), self.trial.note(true, sample)];
        let slower = verdicts.into_iter().find(|verdict| matches!(verdict, Verdict::Slower(_)));
        slower.unwrap_or(Verdict::Open)
    }
}
