//! Holds the far end of a job back while its single follower is slow.

use tokio::sync::watch;

/// Makes the far end of a job wait for its single follower.
///
/// Bytes count as soon as they arrive, even while they are not stored and therefore not shown.
/// Otherwise a slow disk would let the far end run far ahead of a follower that can't see those
/// bytes.
#[derive(Debug, Default)]
pub(super) struct Pacing(watch::Sender<PacingProgress>);

/// Progress of the far end and of the follower.
///
/// Both are in one `watch`: a closure that reads one `watch` under the lock of another could
/// deadlock with one that does the opposite.
#[derive(Clone, Copy, Debug, Default)]
struct PacingProgress {
    arrived_bytes: u64,
    /// `u64::MAX` once the follower has left.
    taken_bytes: u64,
}

/// Maximum bytes that the far end may be ahead.
const AHEAD: u64 = 1 << 20;

impl PacingProgress {
    fn is_ahead(&self) -> bool {
        self.arrived_bytes >= self.taken_bytes.saturating_add(AHEAD)
    }
}

impl Pacing {
    pub(super) fn note_arrived(&self, bytes: usize) {
        self.0.send_modify(|progress| progress.arrived_bytes += bytes as u64);
    }

    /// Notes that the follower has taken all bytes before this position.
    pub(super) fn note_taken(&self, position: u64) {
        // A position never goes back: a late report must not undo `stop_pacing`.
        self.0.send_if_modified(|progress| {
            let is_news = position > progress.taken_bytes;
            if is_news {
                progress.taken_bytes = position;
            }
            is_news
        });
    }

    /// Notes that the follower has gone. From here on nothing is held back.
    pub(super) fn stop_pacing(&self) {
        self.note_taken(u64::MAX);
    }

    pub(super) fn is_ahead(&self) -> bool {
        self.0.borrow().is_ahead()
    }

    /// Waits until the far end is so far ahead that it must send no more. Cancel safe.
    pub(super) async fn wait_until_ahead(&self) {
        let mut progress = self.0.subscribe();
        drop(
            progress
                .wait_for(PacingProgress::is_ahead)
                .await
                .expect("self holds the sender"),
        );
    }

    /// Waits until the follower has caught up enough that more can be received. Cancel safe.
    pub(super) async fn wait_for_room(&self) {
        let mut progress = self.0.subscribe();
        drop(
            progress
                .wait_for(|progress| !progress.is_ahead())
                .await
                .expect("self holds the sender"),
        );
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_far_end_waits_for_what_has_arrived_and_was_not_taken() {
        let pacing = Pacing::default();
        let arrived = usize::try_from(AHEAD).unwrap();
        pacing.note_arrived(arrived - 1);
        assert!(!pacing.is_ahead() && pacing.wait_until_ahead().now_or_never().is_none());
        pacing.note_arrived(1);
        assert!(pacing.is_ahead() && pacing.wait_until_ahead().now_or_never().is_some());
        assert!(pacing.wait_for_room().now_or_never().is_none());
        pacing.note_taken(1);
        assert!(!pacing.is_ahead() && pacing.wait_for_room().now_or_never().is_some());
        pacing.note_arrived(10 * arrived);
        pacing.stop_pacing();
        assert!(!pacing.is_ahead() && pacing.wait_for_room().now_or_never().is_some());
    }
}
