//! Who changed what decides, and when: the last entries in memory, every entry in the process's log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pointsman_api::service::AuditEntry;
use pointsman_policy::SlotKind;

/// Entries that are kept.
const ENTRIES_MAX: usize = 256;

/// The audit log.
#[derive(Default)]
pub struct Audit(Mutex<VecDeque<AuditEntry>>);

impl Audit {
    /// Adds an entry. `before` and `after` are digests, or none for the builtin.
    pub fn note(
        &self,
        slot: Option<SlotKind>,
        by: &str,
        action: &str,
        before: Option<String>,
        after: Option<String>,
        note: &str,
    ) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let name = |digest: Option<String>| digest.unwrap_or_else(|| "builtin".to_owned());
        let (before, after) = (name(before), name(after));
        let slot = slot.map(SlotKind::name);
        tracing::info!(target: "audit", slot, by, action, before, after, note, "a slot was changed");
        let (slot, by, action, note) = (slot.map(str::to_owned), by.to_owned(), action.to_owned(), note.to_owned());
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(AuditEntry { time, slot, by, action, before, after, note });
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> Vec<AuditEntry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
