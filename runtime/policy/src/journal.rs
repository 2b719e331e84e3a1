//! `host.log`: what a policy tells its operators, bounded in length, in rate and in what it can do to a terminal.
//!
//! Lines go to `tracing` under the policy's name. Outside the quota they are dropped and counted. The last line at error level
//! of a call is kept in any case, because it is the message of a panic when a trap follows. What a line costs in fuel does
//! not depend on the quota, so that a replay ends at the same point.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::component::WasmStr;
use wasmtime::{Result, StoreContextMut};

use crate::instance::State;
use crate::limits::{LOG_FUEL, LOG_FUEL_PER_BYTE, LOG_LINE_BYTES_MAX, LOG_LINES_BURST};

/// Levels of `host.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// How many lines may still be written. Belongs to a policy and outlives its instances, so that dying does not refill it.
#[derive(Debug)]
pub(crate) struct Quota {
    left: AtomicU32,
    dropped: AtomicU32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { left: AtomicU32::new(LOG_LINES_BURST), dropped: AtomicU32::new(0) }
    }
}

impl Quota {
    /// Takes one line. `Some` holds the number of lines dropped since the last one.
    pub(crate) fn take(&self) -> Option<u32> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        Some(self.dropped.swap(0, Ordering::Relaxed))
    }

    /// Allows one more line, up to the burst.
    pub(crate) fn refill(&self) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store((left + 1).min(LOG_LINES_BURST), Ordering::Relaxed);
    }
}

/// The log of one instance.
pub(crate) struct Journal {
    policy: Arc<str>,
    quota: Arc<Quota>,
    last_error: String,
}

impl Journal {
    pub(crate) fn new(policy: Arc<str>, quota: Arc<Quota>) -> Self {
        Self { policy, quota, last_error: String::new() }
    }

    /// Forgets the last call's error.
    pub(crate) fn start_call(&mut self) {
        self.last_error.clear();
    }

    /// The last error line of this call, escaped; empty for none.
    pub(crate) fn last_error(&self) -> &str {
        &self.last_error
    }

    fn write(&mut self, level: Level, dropped: u32, line: &str) {
        let policy = &*self.policy;
        match level {
            Level::Debug => tracing::debug!(policy, dropped, "{line}"),
            Level::Info => tracing::info!(policy, dropped, "{line}"),
            Level::Warn => tracing::warn!(policy, dropped, "{line}"),
            Level::Error => tracing::error!(policy, dropped, "{line}"),
        }
    }
}

/// The call wrote more to the log, or to its figures, than its fuel pays for.
#[derive(Debug, thiserror::Error)]
#[error("the call logs more than its fuel pays for")]
pub(crate) struct LogFlood;

/// Takes fuel for what the host does in a call.
///
/// # Errors
/// [`LogFlood`]: there is not so much left.
pub(crate) fn charge(store: &mut StoreContextMut<'_, State>, cost: u64) -> Result<()> {
    let fuel = store.get_fuel()?.checked_sub(cost).ok_or(LogFlood)?;
    store.set_fuel(fuel)
}

/// The body of `host.log`.
///
/// # Errors
/// [`LogFlood`], or a message that is not text; both end the guest's call.
pub(crate) fn log(store: &mut StoreContextMut<'_, State>, level: Level, message: &WasmStr) -> Result<()> {
    let len = message.to_str(&*store)?.len() as u64;
    charge(store, LOG_FUEL.saturating_add(LOG_FUEL_PER_BYTE.saturating_mul(len)))?;
    let text = message.to_str(&*store)?;
    let line = match store.data().journal.quota.take() {
        None if level != Level::Error => None,
        grant => Some((grant, escape(&text))),
    };
    drop(text);
    let journal = &mut store.data_mut().journal;
    if let Some((grant, line)) = line {
        if let Some(dropped) = grant {
            journal.write(level, dropped, &line);
        }
        if level == Level::Error {
            journal.last_error = line;
        }
    }
    Ok(())
}

/// One line of bounded length without control characters or marks that reorder text.
pub(crate) fn escape(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(LOG_LINE_BYTES_MAX));
    for c in text.chars() {
        let before = line.len();
        match c {
            _ if c.is_control() => line.extend(c.escape_default()),
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => line.extend(c.escape_unicode()),
            _ => line.push(c),
        }
        if line.len() > LOG_LINE_BYTES_MAX {
            line.truncate(before);
            let _ = write!(line, "… ({} bytes in all)", text.len());
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_moves_a_terminal_or_reorders_text() {
        assert_eq!(escape("a\x1b[31m\nb\u{202e}c é"), "a\\u{1b}[31m\\nb\\u{202e}c é");
    }

    #[test]
    fn cuts_a_long_line_at_a_character() {
        let line = escape(&"é".repeat(LOG_LINE_BYTES_MAX));
        assert!(line.starts_with("éé") && line.ends_with("… (2048 bytes in all)"));
        assert!(line.len() <= LOG_LINE_BYTES_MAX + 32);
    }

    #[test]
    fn quota_drops_counts_and_refills_up_to_the_burst() {
        let quota = Quota::default();
        for _ in 0..LOG_LINES_BURST {
            assert_eq!(quota.take(), Some(0));
        }
        assert_eq!((quota.take(), quota.take()), (None, None));
        quota.refill();
        assert_eq!((quota.take(), quota.take()), (Some(2), None));
        for _ in 0..2 * LOG_LINES_BURST {
            quota.refill();
        }
        assert_eq!((0..).take_while(|_| quota.take().is_some()).count(), LOG_LINES_BURST as usize);
    }
}
