//! Turns on the device, in order of arrival.
//!
//! Each stage worker takes a turn for one step of its layers. Without order, a stage that finishes and comes back at once
//! would win against one that has to be woken first, again and again. A waiting thread sleeps; a turn lasts milliseconds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Tickets {
    /// The next ticket to give out.
    next: u64,
    /// The ticket whose turn it is; equal to `next` when nobody holds or waits.
    serving: u64,
}

/// Gives turns.
#[derive(Default)]
pub(crate) struct Turnstile {
    tickets: Mutex<Tickets>,
    changed: Condvar,
}

/// A turn; it ends when this is dropped, also by a panic.
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    /// Waits until all that came before have had their turn.
    pub(crate) fn take(&self) -> Turn<'_> {
        let mut tickets = self.lock();
        let mine = tickets.next;
        tickets.next += 1;
        while tickets.serving != mine {
            tickets = self.changed.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }

    /// Two counters that are whole after every statement: a panic elsewhere can not leave them broken.
    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().serving += 1;
        // All are woken and all but one sleep on: there are only as many as there are stages.
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn turns_come_in_order_of_arrival() {
        let turnstile = Turnstile::default();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let first = turnstile.take();
            for caller in 0..5 {
                let (turnstile, order) = (&turnstile, &order);
                scope.spawn(move || {
                    let _turn = turnstile.take();
                    order.lock().unwrap().push(caller);
                });
                // The next caller comes when this one has its ticket.
                while turnstile.lock().next != caller + 2 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_greedy_thread_can_not_take_two_turns_while_another_waits() {
        let turnstile = Turnstile::default();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let first = turnstile.take();
            for name in ["a", "b"] {
                let (turnstile, order) = (&turnstile, &order);
                scope.spawn(move || {
                    for _ in 0..50 {
                        let _turn = turnstile.take();
                        order.lock().unwrap().push(name);
                        // Long enough for the other to come back and wait.
                        thread::sleep(Duration::from_micros(300));
                    }
                });
            }
            while turnstile.lock().next != 3 {
                thread::sleep(Duration::from_millis(1));
            }
            drop(first);
        });
        let order = order.lock().unwrap();
        let longest = order.chunk_by(|a, b| a == b).map(<[_]>::len).max();
        assert!(longest <= Some(10), "turns are not shared: {order:?}");
    }

    #[test]
    fn a_panic_ends_the_turn() {
        let turnstile = Turnstile::default();
        let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = turnstile.take();
            panic!("in a turn");
        }));
        assert!(thrown.is_err());
        drop(turnstile.take());
    }
}
