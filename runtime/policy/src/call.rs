//! One guest call: armed with fuel and a deadline before, classed when it fails.
//!
//! Everything that runs guest code goes through [`guard`], instantiation included.

use pointsman_engine::decision::{Fault, FaultClass};
use wasmtime::{Error, Result, Store, Trap};

use crate::instance::{GrowthDenied, State};
use crate::journal::LogFlood;
use crate::limits::DEADLINE_TICKS;

/// Runs `body` with this much fuel and a fresh deadline. After a fault the instance must not be called again.
///
/// # Errors
/// What ended the call, in one line that starts with `what` and ends with the guest's own last words, if it logged any.
pub(crate) fn guard<R>(
    store: &mut Store<State>,
    fuel: u64,
    what: &str,
    body: impl FnOnce(&mut Store<State>) -> Result<R>,
) -> std::result::Result<R, Fault> {
    guard_for(store, fuel, DEADLINE_TICKS, what, body)
}

/// The same with another deadline.
///
/// # Errors
/// As [`guard`].
pub(crate) fn guard_for<R>(
    store: &mut Store<State>,
    fuel: u64,
    ticks: u64,
    what: &str,
    body: impl FnOnce(&mut Store<State>) -> Result<R>,
) -> std::result::Result<R, Fault> {
    store.data_mut().journal.start_call();
    store.set_epoch_deadline(ticks);
    let outcome = store.set_fuel(fuel).and_then(|()| body(store));
    store.data_mut().fuel_used = fuel - store.get_fuel().unwrap_or(0).min(fuel);
    outcome.map_err(|error| fault(store.data(), what, &error))
}

#[cold]
fn fault(state: &State, what: &str, error: &Error) -> Fault {
    let cause = crate::journal::escape(&format!("{error:#}"));
    let detail = match state.journal.last_error() {
        "" => format!("{what}: {cause}"),
        words => format!("{what}: {cause}; the policy's last words: {words}"),
    };
    Fault::new(class_of(error), detail)
}

fn class_of(error: &Error) -> FaultClass {
    if error.is::<GrowthDenied>() {
        return FaultClass::Memory;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => FaultClass::Fuel,
        Some(Trap::Interrupt) => FaultClass::Deadline,
        Some(Trap::StackOverflow) => FaultClass::Stack,
        None if error.is::<LogFlood>() || is_hostcall_fuel(error) => FaultClass::Oversize,
        _ => FaultClass::Trap,
    }
}

/// The engine's error for data over [`crate::limits::RESULT_BYTES_MAX`] has no public type; a test holds this text.
fn is_hostcall_fuel(error: &Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls has been exhausted")
}
