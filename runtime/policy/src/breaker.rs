//! When a policy that keeps failing is left alone for a while, and when it is tried again.
//!
//! Time is counted in decisions, so a replay pauses and resumes at the same points. An answer counts as good only once the
//! guard has not refused it, which is known when the engine calls again.

use crate::limits::{PAUSE_DECISIONS_MAX, PAUSE_DECISIONS_MIN, STRIKES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Called as usual; so many faults in a row.
    Closed { strikes: u32 },
    /// Not called for so many more decisions, at least one.
    Paused { left: u32 },
    /// Called again after a pause; the next fault pauses it for longer.
    Probing,
}

/// Counts one policy's faults in a row.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    /// Length of the next pause, in decisions.
    pause: u32,
    /// An answer has been given that the guard may still refuse.
    unconfirmed: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { strikes: 0 }, pause: PAUSE_DECISIONS_MIN, unconfirmed: false }
    }
}

impl Breaker {
    pub(crate) fn paused(&self) -> bool {
        matches!(self.state, State::Paused { .. })
    }

    /// The engine moves on: an answer that it has not refused by now was good.
    pub(crate) fn settle(&mut self) {
        if self.unconfirmed {
            *self = Self::default();
        }
    }

    /// Counts one decision; false means that the policy must not be asked.
    pub(crate) fn admit(&mut self) -> bool {
        let State::Paused { left } = self.state else { return true };
        self.state = if left > 1 { State::Paused { left: left - 1 } } else { State::Probing };
        false
    }

    /// The policy gave an answer that decodes.
    pub(crate) fn answered(&mut self) {
        self.unconfirmed = true;
    }

    /// The policy faulted, or its answer was refused. True when this begins a pause.
    pub(crate) fn fault(&mut self) -> bool {
        self.unconfirmed = false;
        match self.state {
            State::Closed { strikes } if strikes + 1 < STRIKES_MAX => {
                self.state = State::Closed { strikes: strikes + 1 };
                false
            }
            State::Paused { .. } => false,
            State::Closed { .. } | State::Probing => {
                self.state = State::Paused { left: self.pause };
                self.pause = self.pause.saturating_mul(2).min(PAUSE_DECISIONS_MAX);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decisions that are turned away until the next one is admitted, that one not counted.
    fn pause_of(breaker: &mut Breaker) -> u32 {
        (0..).take_while(|_| !breaker.admit()).count() as u32
    }

    #[test]
    fn pauses_at_the_third_fault_in_a_row_and_doubles_up_to_the_longest() {
        let mut breaker = Breaker::default();
        assert_eq!([breaker.fault(), breaker.fault(), breaker.fault()], [false, false, true]);
        let mut expected = PAUSE_DECISIONS_MIN;
        for _ in 0..10 {
            assert!(breaker.paused());
            assert_eq!(pause_of(&mut breaker), expected);
            assert!(!breaker.paused());
            assert!(breaker.fault(), "a fault while probing pauses at once");
            expected = (2 * expected).min(PAUSE_DECISIONS_MAX);
        }
    }

    #[test]
    fn an_answer_that_stands_closes_it() {
        let mut breaker = Breaker::default();
        assert!((0..STRIKES_MAX).any(|_| breaker.fault()));
        assert_eq!(pause_of(&mut breaker), PAUSE_DECISIONS_MIN);
        breaker.answered();
        breaker.settle();
        assert_eq!([breaker.fault(), breaker.fault(), breaker.fault()], [false, false, true]);
        assert_eq!(pause_of(&mut breaker), PAUSE_DECISIONS_MIN, "the pause is short again");
    }

    #[test]
    fn refused_answers_are_strikes_although_each_was_an_answer() {
        let mut breaker = Breaker::default();
        let mut tripped = false;
        for _ in 0..STRIKES_MAX {
            breaker.settle();
            assert!(breaker.admit());
            breaker.answered();
            tripped = breaker.fault();
        }
        assert!(tripped && breaker.paused());
    }
}
