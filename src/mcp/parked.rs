use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::answer_form::unguessable;
use super::call::Call;
use crate::lock::lock;

/// Calls that go on while their client has gone to ask a person (multi round-trip requests, SEP-2322), by the state that the client
/// comes back with.
#[derive(Default)]
pub(super) struct Parked(Mutex<VecDeque<Place>>);

struct Place {
    state: String,
    since: Instant,
    call: Shared,
}

/// A call, which goes on whether or not its client waits for it just now.
pub(super) type Shared = Arc<tokio::sync::Mutex<Call>>;

/// Time after which a client that has not come back has lost its call.
const KEPT: Duration = Duration::from_secs(300);
/// Maximum calls of a caller that are kept.
const MOST: usize = 64;

impl Parked {
    /// Keeps a call; the state to come back with.
    pub(super) fn put(&self, call: Shared) -> String {
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
    pub(super) fn get(&self, state: &str) -> Option<Shared> {
        lock(&self.0).iter().find(|place| place.state == state).map(|place| Arc::clone(&place.call))
    }

    /// The call is over.
    pub(super) fn remove(&self, call: &Shared) {
        lock(&self.0).retain(|place| !Arc::ptr_eq(&place.call, call));
    }
}
