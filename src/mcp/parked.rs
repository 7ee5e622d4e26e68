use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::answer_form::unguessable;
use crate::lock::lock;

/// Calls that go on while their client has gone to ask a person (multi round-trip requests, SEP-2322), by the state that the client
/// comes back with.
pub(super) struct Parked<C>(Mutex<VecDeque<Place<C>>>);

struct Place<C> {
    state: String,
    since: Instant,
    call: Shared<C>,
}

impl<C> Default for Parked<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A call, which goes on whether or not its client waits for it just now.
pub(super) type Shared<C> = Arc<tokio::sync::Mutex<C>>;

/// Time after which a client that has not come back has lost its call.
const KEPT: Duration = Duration::from_secs(300);
/// Maximum calls of a caller that are kept.
const MOST: usize = 64;

impl<C> Parked<C> {
    /// Keeps a call; the state to come back with.
    pub(super) fn put(&self, call: Shared<C>) -> String {
        let mut places = lock(&self.0);
        places.retain(|place| place.since.elapsed() < KEPT);
        if places.len() >= MOST {
            places.pop_front();
        }
        let state = unguessable();
        places.push_back(Place { state: state.clone(), since: Instant::now(), call });
        state
    }

    /// The call of a client that has come back. It stays: a client whose connection breaks comes back once more.
    pub(super) fn get(&self, state: &str) -> Option<Shared<C>> {
        lock(&self.0).iter().find(|place| place.state == state).map(|place| Arc::clone(&place.call))
    }

    /// The call is over.
    pub(super) fn remove(&self, call: &Shared<C>) {
        lock(&self.0).retain(|place| !Arc::ptr_eq(&place.call, call));
    }
}
