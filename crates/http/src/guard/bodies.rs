//! Limits the bytes of request bodies held at a time, for all callers together and for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_base::lock::lock;
use sshjobs_core::jobs::Caller;

/// Maximum bytes of one body: more than a write of a mebibyte needs.
const MOST_OF_BODY: usize = 4 << 20;
/// Maximum bytes of bodies held for one caller.
const MOST_OF_CALLER: usize = 16 << 20;
/// Maximum bytes of bodies held for all callers.
const MOST_OF_ALL: usize = 128 << 20;
/// Maximum callers remembered while they hold nothing.
const MOST_CALLERS: usize = 4096;
/// Time limit for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Maximum bytes of a refused body that are read and discarded, and the time limit for that.
const MOST_OF_REST: usize = 16 << 20;
const REST_TIME: Duration = Duration::from_secs(2);

/// Budget of bytes for bodies.
pub(crate) struct Bodies {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<Caller, Arc<Semaphore>>>,
}

/// A body with its share of the budget, which is returned when this is dropped.
pub(crate) struct HeldBody {
    of_all: Arc<Semaphore>,
    of_caller: Arc<Semaphore>,
    permits: Option<Permits>,
}

/// Permits for the bytes that were read so far.
struct Permits {
    of_caller: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MOST_OF_ALL)),
            of: Mutex::default(),
        }
    }

    /// Reads a whole body. Its bytes count until the [`HeldBody`] is dropped.
    ///
    /// # Errors
    /// The body is too large or too slow, or the caller or all callers together hold too many
    /// bytes.
    pub(crate) async fn read(
        &self,
        caller: &Caller,
        body: Body,
    ) -> Result<(Bytes, HeldBody), HttpFailure> {
        let mut held = self.begin(caller);
        let reading = collect(body, &mut held);
        let bytes = timeout(BODY_TIME, reading).await.map_err(|_| reject::body_too_slow())??;
        Ok((bytes, held))
    }

    fn begin(&self, caller: &Caller) -> HeldBody {
        let mut of = lock(&self.of);
        if of.len() > MOST_CALLERS {
            // Callers that hold bytes stay: a second semaphore would double their share.
            of.retain(|_, bytes| bytes.available_permits() < MOST_OF_CALLER);
        }
        let of_caller = of
            .entry(caller.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_CALLER)));
        HeldBody {
            of_all: Arc::clone(&self.all),
            of_caller: Arc::clone(of_caller),
            permits: None,
        }
    }
}

async fn collect(mut body: Body, held: &mut HeldBody) -> Result<Bytes, HttpFailure> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| reject::body_broken())?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if collected.len() + data.len() > MOST_OF_BODY {
            drop(collected);
            read_rest(body).await;
            return Err(reject::body_too_large(MOST_OF_BODY));
        }
        // Counted as they arrive: a body in chunks does not declare its length.
        held.add(data.len())?;
        collected.extend_from_slice(&data);
    }
    Ok(collected.into())
}

/// Reads the rest of a body and discards it. A client that still sends when the connection is closed
/// may never see the answer that refuses its body.
async fn read_rest(mut body: Body) {
    let mut rest = 0;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            rest += frame.data_ref().map_or(0, Bytes::len);
            if rest > MOST_OF_REST {
                return;
            }
        }
    };
    // A slower client is not waited for.
    timeout(REST_TIME, reading).await.ok();
}

impl HeldBody {
    fn add(&mut self, bytes: usize) -> Result<(), HttpFailure> {
        let permits = u32::try_from(bytes).map_err(|_| reject::body_too_large(MOST_OF_BODY))?;
        // Refused and not queued: half-read bodies would wait for each other's bytes.
        let of_caller = Arc::clone(&self.of_caller).try_acquire_many_owned(permits);
        let of_caller = of_caller.map_err(|_| reject::too_many_bytes_of_caller())?;
        let of_all = Arc::clone(&self.of_all).try_acquire_many_owned(permits);
        let of_all = of_all.map_err(|_| reject::too_many_bytes_of_all())?;
        // Merged, so that a body in many small chunks costs no memory for each.
        match &mut self.permits {
            Some(held) => {
                held.of_caller.merge(of_caller);
                held.of_all.merge(of_all);
            }
            None => self.permits = Some(Permits { of_caller, of_all }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    fn body(bytes: usize) -> Body {
        Body::from(vec![b' '; bytes])
    }

    #[tokio::test]
    async fn one_caller_with_many_bytes_leaves_room_for_others() {
        let bodies = Bodies::new();
        let greedy = Caller::new("greedy");
        let mut held = Vec::new();
        for _ in 0..MOST_OF_CALLER / MOST_OF_BODY {
            held.push(bodies.read(&greedy, body(MOST_OF_BODY)).await.ok().unwrap());
        }

        let refused = bodies.read(&greedy, body(1)).await.err().unwrap().into_response();

        assert_eq!(refused.status(), 429);
        assert!(bodies.read(&Caller::new("other"), body(1)).await.is_ok());
        drop(held);
        assert!(bodies.read(&greedy, body(1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_gives_back_what_it_took() {
        let bodies = Bodies::new();

        let refused = bodies.read(&Caller::new("one"), body(MOST_OF_BODY + 1)).await.err().unwrap();

        assert_eq!(refused.into_response().status(), 413);
        assert_eq!(bodies.all.available_permits(), MOST_OF_ALL);
    }
}
