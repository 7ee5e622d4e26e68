use std::collections::VecDeque;
use std::sync::Mutex;
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
    call: Call,
}

/// Time after which a client that has not come back has lost its call.
const KEPT: Duration = Duration::from_secs(300);
/// Maximum calls of a caller that are kept.
const MOST: usize = 64;

impl Parked {
    /// Keeps a call; the state to come back with.
    pub(super) fn put(&self, call: Call) -> String {
        let mut places = lock(&self.0);
        places.retain(|place| place.since.elapsed() < KEPT);
        if places.len() >= MOST {
            places.pop_front();
        }
        let state = unguessable();
        places.push_back(Place { state: state.clone(), since: Instant::now(), call });
        state
    }

    /// The call of a client that has come back.
    pub(super) fn take(&self, state: &str) -> Option<Call> {
        let mut places = lock(&self.0);
        let place = places.iter().position(|place| place.state == state)?;
        places.remove(place).map(|place| place.call)
    }
}
