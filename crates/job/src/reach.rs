//! Whether the host of a durable job can be reached.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Time at which the host went out of reach; `None` while it is followed.
#[derive(Debug, Default)]
pub(super) struct HostReach(watch::Sender<Option<Instant>>);

impl HostReach {
    /// Notes whether the host is followed. Further reports that it is out of reach keep the time of
    /// the first.
    pub(super) fn note(&self, is_reached: bool) {
        self.0.send_if_modified(|lost_at| {
            let was_reached = lost_at.is_none();
            let has_changed = was_reached != is_reached;
            if has_changed {
                *lost_at = (!is_reached).then(Instant::now);
            }
            has_changed
        });
    }

    /// Time for which the host has been out of reach.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.0.borrow().map(|lost_at| lost_at.elapsed())
    }

    /// Waits until the host is followed, or has been out of reach for `patience`. Cancel safe.
    pub(super) async fn wait_until_reached(&self, patience: Duration) {
        let mut reach = self.0.subscribe();
        let Some(lost_at) = *reach.borrow_and_update() else { return };
        let reached = reach.wait_for(Option::is_none);
        // However the wait ends, the caller continues with the output that has arrived.
        drop(timeout_at(lost_at + patience, reached).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_host_is_followed_or_was_lost_for_long() {
        const PATIENCE: Duration = Duration::from_secs(5);
        let reach = HostReach::default();
        reach.wait_until_reached(PATIENCE).await;

        reach.note(false);
        let began = Instant::now();
        reach.wait_until_reached(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);
        assert_eq!(reach.lost_for(), Some(PATIENCE));
        // It has been lost for long already.
        reach.wait_until_reached(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);

        reach.note(true);
        reach.note(false);
        let began = Instant::now();
        let following = async {
            tokio::time::sleep(PATIENCE / 2).await;
            reach.note(true);
        };
        tokio::join!(reach.wait_until_reached(PATIENCE), following);
        assert_eq!(began.elapsed(), PATIENCE / 2);
        assert_eq!(reach.lost_for(), None);
    }
}
