use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use sshjobs_base::lock::lock;

/// Calls that continue while their client asks a person (multi round-trip requests, SEP-2322).
///
/// A client gets a state together with the question, and sends it with its next request. The state
/// identifies the call.
pub(crate) struct Parked<C>(Mutex<VecDeque<ParkedCall<C>>>);

struct ParkedCall<C> {
    state: String,
    since: Instant,
    call: Shared<C>,
}

impl<C> Default for Parked<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A call, which continues whether or not its client is waiting.
pub(crate) type Shared<C> = Arc<tokio::sync::Mutex<C>>;

/// Time after which the next [`Parked::put`] drops a call whose client has not returned.
const KEPT: Duration = Duration::from_secs(300);
/// Maximum calls kept for a caller.
const MOST: usize = 64;

impl<C> Parked<C> {
    /// Keeps a call under the state that its client must send to find it again.
    pub(crate) fn put(&self, state: String, call: Shared<C>) {
        let mut places = lock(&self.0);
        places.retain(|place| place.since.elapsed() < KEPT);
        if places.len() >= MOST {
            // Drops the oldest. This ends its call, unless a request still holds the call.
            places.pop_front();
        }
        places.push_back(ParkedCall {
            state,
            since: Instant::now(),
            call,
        });
    }

    /// The call of a client that returns. The call stays parked, so that a client whose connection
    /// breaks can return again.
    pub(crate) fn get(&self, state: &str) -> Option<Shared<C>> {
        lock(&self.0)
            .iter()
            .find(|place| place.state == state)
            .map(|place| Arc::clone(&place.call))
    }

    /// Drops a finished call.
    pub(crate) fn remove(&self, call: &Shared<C>) {
        lock(&self.0).retain(|place| !Arc::ptr_eq(&place.call, call));
    }
}
