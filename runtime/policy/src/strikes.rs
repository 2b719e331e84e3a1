//! When a policy has faulted too often: a bucket that each fault fills and each good answer drains a little.
//!
//! [`STRIKES_MAX`] faults in a row fill it, and so does a lasting rate of more than one fault in [`ANSWERS_PER_STRIKE`]. Counted in
//! decisions, so that a replay comes to the same end. An answer is good only once the guard has not refused it, which is known
//! when the engine asks again.

use crate::limits::{ANSWERS_PER_STRIKE, STRIKES_MAX};

/// One policy's bucket.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    level: u32,
    /// An answer has been given that the guard may still refuse.
    unconfirmed: bool,
}

impl Strikes {
    /// The engine moves on: an answer that it has not refused by now was good.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.unconfirmed) {
            self.level = self.level.saturating_sub(1);
        }
    }

    /// The policy gave an answer.
    pub(crate) fn answered(&mut self) {
        self.unconfirmed = true;
    }

    /// The policy faulted, or its answer was refused. True when that was once too often.
    pub(crate) fn fault(&mut self) -> bool {
        self.unconfirmed = false;
        self.level = self.level.saturating_add(ANSWERS_PER_STRIKE);
        self.level >= STRIKES_MAX * ANSWERS_PER_STRIKE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a policy that answers well `good` times before each fault is ever out, within 10,000 decisions.
    fn is_out(good: u32) -> bool {
        let mut strikes = Strikes::default();
        (0..10_000 / (good + 1)).any(|_| {
            (0..good).for_each(|_| {
                strikes.answered();
                strikes.settle();
            });
            strikes.fault()
        })
    }

    #[test]
    fn faults_in_a_row_and_a_lasting_rate_are_too_many() {
        let mut strikes = Strikes::default();
        assert_eq!([strikes.fault(), strikes.fault(), strikes.fault()], [false, false, true]);
        assert!(is_out(1) && is_out(ANSWERS_PER_STRIKE - 1));
        assert!(!is_out(ANSWERS_PER_STRIKE) && !is_out(100));
    }

    #[test]
    fn refused_answers_are_strikes_although_each_was_an_answer() {
        let mut strikes = Strikes::default();
        let mut out = false;
        for _ in 0..STRIKES_MAX {
            strikes.settle();
            strikes.answered();
            out = strikes.fault();
        }
        assert!(out);
    }
}
