//! Activity of one connection: whether a request is being answered, and for how long none was.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// Time for which a connection without requests is kept after the last one.
const IDLE_TIME: Duration = Duration::from_secs(90);

/// Requests of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct OpenRequests {
    /// Being answered now.
    open: usize,
    /// Total so far.
    total: u64,
}

/// Counts the requests of a connection.
#[derive(Clone, Default)]
pub(crate) struct Activity(watch::Sender<OpenRequests>);

/// A request that is being answered. Its connection is not idle until this is dropped.
pub(crate) struct BusyConnection(watch::Sender<OpenRequests>);

impl Activity {
    /// Notes that a request with a complete head has arrived.
    pub(crate) fn begin(&self) -> BusyConnection {
        self.0.send_modify(|requests| {
            requests.open += 1;
            requests.total += 1;
        });
        BusyConnection(self.0.clone())
    }

    /// Whether a request is being answered.
    pub(super) fn is_busy(&self) -> bool {
        self.0.borrow().open > 0
    }

    /// Whether there was a request with a complete head.
    pub(super) fn has_begun(&self) -> bool {
        self.0.borrow().total > 0
    }

    /// Resolves when no complete head has arrived by `first_head`, or none for [`IDLE_TIME`] after
    /// the last answer.
    pub(crate) async fn idle(&self, first_head: Instant) {
        let mut requests = self.0.subscribe();
        loop {
            // Marks the value as seen, so that `changed` reports every later one.
            let now = *requests.borrow_and_update();
            let changed = requests.changed();
            let is_over = match (now.open, now.total) {
                // A fixed deadline: neither a handshake nor single bytes of a head extend it.
                (0, 0) => timeout_at(first_head, changed).await.is_err(),
                (0, _) => timeout(IDLE_TIME, changed).await.is_err(),
                // The answer has limits of its own, and the sender lives as long as this.
                _ => changed.await.is_err(),
            };
            if is_over {
                return;
            }
        }
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.0.send_modify(|requests| requests.open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any limit here.
    const LONG: Duration = Duration::from_secs(3600);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_no_whole_head_in_time_is_idle() {
        let began = Instant::now();

        Activity::default().idle(soon()).await;

        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_not_idle_while_a_request_is_answered() {
        let activity = Activity::default();
        let busy = activity.begin();

        assert!(timeout(LONG, activity.idle(soon())).await.is_err());

        drop(busy);
        assert!(timeout(IDLE_TIME * 2, activity.idle(soon())).await.is_ok());
    }
}
