//! Digests that misbehaved: how long each must stay out, and which may not come back at all.
//!
//! Every automatic removal of a policy is a strike against its bytes. The first ones cost a pause that doubles; the last one bars
//! the digest until an operator clears it. Shared by the slot, which gives strikes, and the host, which asks before it prepares.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::artifact::Digest;
use crate::limits::{QUARANTINE_PAUSE, QUARANTINE_STRIKES, QUARANTINED_MAX};

/// One digest's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// Automatic removals so far.
    pub strikes: u32,
    /// Why it was removed last.
    pub reason: String,
    /// When it may come back; none for never, unless cleared.
    pub until: Option<Instant>,
}

/// All digests with a record, at most [`QUARANTINED_MAX`].
#[derive(Debug, Default)]
pub struct Quarantine(Mutex<BTreeMap<Digest, Offence>>);

impl Quarantine {
    /// Notes a removal and returns the number of strikes.
    pub fn strike(&self, digest: Digest, reason: &str) -> u32 {
        let mut all = self.lock();
        if all.len() >= QUARANTINED_MAX && !all.contains_key(&digest) {
            // The one that may come back first is forgotten; those that are barred stay.
            let soonest = all.iter().filter_map(|(digest, offence)| Some((offence.until?, *digest))).min();
            let Some((_, forgotten)) = soonest else { return QUARANTINE_STRIKES };
            all.remove(&forgotten);
        }
        let strikes = all.get(&digest).map_or(0, |offence| offence.strikes) + 1;
        let pause = QUARANTINE_PAUSE.saturating_mul(1 << (strikes - 1).min(16));
        let until = (strikes < QUARANTINE_STRIKES).then(|| Instant::now() + pause);
        all.insert(digest, Offence { strikes, reason: reason.to_owned(), until });
        strikes
    }

    /// May these bytes come in?
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn check(&self, digest: Digest) -> Result<(), String> {
        let all = self.lock();
        let Some(offence) = all.get(&digest) else { return Ok(()) };
        let Offence { strikes, reason, until } = offence;
        match until {
            None => Err(format!(
                "{digest} is quarantined after {strikes} removals, the last because {reason}; an operator can clear it"
            )),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left == Duration::ZERO {
                    return Ok(());
                }
                let seconds = left.as_secs_f64().ceil();
                Err(format!("{digest} was removed because {reason}; it may come back in {seconds} s, or when cleared"))
            }
        }
    }

    /// Forgets a digest's record. False if there was none.
    pub fn clear(&self, digest: Digest) -> bool {
        self.lock().remove(&digest).is_some()
    }

    /// All records, by digest.
    #[must_use]
    pub fn list(&self) -> Vec<(Digest, Offence)> {
        self.lock().iter().map(|(digest, offence)| (*digest, offence.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, Offence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_strike_bars_until_cleared() {
        let (quarantine, digest) = (Quarantine::default(), Digest::of(b"policy"));
        assert_eq!(quarantine.check(digest), Ok(()));
        for strikes in 1..QUARANTINE_STRIKES {
            assert_eq!(quarantine.strike(digest, "it trapped"), strikes);
            let refusal = quarantine.check(digest).unwrap_err();
            assert!(refusal.contains("may come back in") && refusal.contains("it trapped"), "{refusal}");
        }
        assert_eq!(quarantine.strike(digest, "it trapped"), QUARANTINE_STRIKES);
        assert!(quarantine.check(digest).unwrap_err().contains("an operator can clear it"));
        assert!(quarantine.clear(digest) && !quarantine.clear(digest));
        assert_eq!(quarantine.check(digest), Ok(()));
    }

    #[test]
    fn is_bounded_and_keeps_those_that_are_barred() {
        let quarantine = Quarantine::default();
        let barred = Digest::of(b"barred");
        for _ in 0..QUARANTINE_STRIKES {
            quarantine.strike(barred, "bad");
        }
        for n in 0..2 * QUARANTINED_MAX {
            quarantine.strike(Digest::of(&n.to_le_bytes()), "bad");
        }
        assert_eq!(quarantine.list().len(), QUARANTINED_MAX);
        assert!(quarantine.check(barred).is_err());
    }
}
