use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::jobs::Caller;
use crate::lock::lock;

/// Calls that are being answered. Each caller has a bound of its own, so that one who floods the server leaves room for others.
pub(super) struct InFlight {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<Caller, Arc<Semaphore>>>,
}

/// Most calls in flight, of all callers and of one.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = 1024;

/// The right to one call; given back when it is dropped.
pub(super) struct Ticket {
    _of_all: OwnedSemaphorePermit,
    _of_one: OwnedSemaphorePermit,
}

impl InFlight {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(MOST)), of: Mutex::default() }
    }

    /// Room for one more call; none when the caller, or all callers together, have as many as they may.
    pub(super) fn enter(&self, caller: &Caller) -> Option<Ticket> {
        let of_one = {
            let mut of = lock(&self.of);
            if of.len() > MOST {
                of.retain(|_, calls| calls.available_permits() < MOST_OF_ONE);
            }
            let calls = of.entry(caller.clone()).or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_ONE)));
            Arc::clone(calls).try_acquire_owned().ok()?
        };
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Ticket { _of_all: of_all, _of_one: of_one })
    }

    /// Calls in flight.
    pub(super) fn count(&self) -> usize {
        MOST - self.all.available_permits()
    }
}

impl Ticket {
    /// Keeps the ticket until the whole response has been sent, or given up.
    pub(super) fn until_sent(self, response: Response) -> Response {
        response.map(|body| {
            if body.is_end_stream() {
                return body;
            }
            Body::new(body.map_frame(move |frame| {
                let _is_held = &self;
                frame
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_room_for_others() {
        let in_flight = InFlight::new();
        let (one, other) = (Caller::new("one"), Caller::new("other"));
        let tickets: Vec<_> = std::iter::from_fn(|| in_flight.enter(&one)).collect();
        assert_eq!(tickets.len(), MOST_OF_ONE);
        assert!(in_flight.enter(&other).is_some());
        drop(tickets);
        assert!(in_flight.enter(&one).is_some());
    }

    #[tokio::test]
    async fn a_ticket_is_held_until_the_body_is_sent() {
        let in_flight = InFlight::new();
        let ticket = in_flight.enter(&Caller::new("one")).unwrap();
        let response = ticket.until_sent(Response::new(Body::from("text")));
        assert_eq!(in_flight.count(), 1);
        response.into_body().collect().await.unwrap();
        assert_eq!(in_flight.count(), 0);
    }
}
