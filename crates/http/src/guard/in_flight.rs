//! Limits on calls in progress, and the wait for their end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use sshjobs_base::lock::lock;
use sshjobs_core::jobs::Caller;

/// Calls in progress. Each caller has a limit of its own, so that a flood by one leaves room for
/// others.
pub(crate) struct InFlight {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<Caller, Arc<Semaphore>>>,
    count: watch::Sender<usize>,
}

/// Maximum calls in progress, of all callers and of one.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = 1024;

/// The right to one call, returned when dropped.
pub(crate) struct Ticket {
    count: watch::Sender<usize>,
    _of_all: OwnedSemaphorePermit,
    _of_one: OwnedSemaphorePermit,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MOST)),
            of: Mutex::default(),
            count: watch::Sender::new(0),
        }
    }

    /// A ticket for another call. `None` if the caller, or all callers together, have reached their
    /// limit.
    pub(crate) fn enter(&self, caller: &Caller) -> Option<Ticket> {
        let of_one = {
            let mut of = lock(&self.of);
            if of.len() > MOST {
                // Callers with calls in progress stay: a second semaphore would double their limit.
                of.retain(|_, calls| calls.available_permits() < MOST_OF_ONE);
            }
            let calls = of
                .entry(caller.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_ONE)));
            // Still locked, so that `retain` can't remove the semaphore before this takes a permit.
            Arc::clone(calls).try_acquire_owned().ok()?
        };
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        self.count.send_modify(|count| *count += 1);
        Some(Ticket {
            count: self.count.clone(),
            _of_all: of_all,
            _of_one: of_one,
        })
    }

    /// Number of calls in progress.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Resolves once no call is in progress.
    pub(crate) async fn all_answered(&self) {
        let mut count = self.count.subscribe();
        drop(count.wait_for(|count| *count == 0).await.expect("self holds the sender"));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_caller_leaves_room_for_others() {
        let in_flight = InFlight::new();
        let one = Caller::new("one");
        let other = Caller::new("other");
        let tickets: Vec<_> = std::iter::from_fn(|| in_flight.enter(&one)).collect();
        assert_eq!(tickets.len(), MOST_OF_ONE);
        assert!(in_flight.enter(&other).is_some());
        drop(tickets);
        assert!(in_flight.enter(&one).is_some());
    }

    #[tokio::test]
    async fn all_calls_are_answered_once_the_last_ticket_is_returned() {
        let in_flight = InFlight::new();
        in_flight.all_answered().await;

        let ticket = in_flight.enter(&Caller::new("one"));
        let mut answered = Box::pin(in_flight.all_answered());
        assert!(answered.as_mut().now_or_never().is_none());

        drop(ticket);
        answered.await;
    }
}
