use tokio::sync::watch;

/// Lets the far end of a job wait for its one follower. What has arrived counts, also where it is not stored yet and so not shown:
/// else a slow disk would let the far end run ahead of a follower that can't see how far.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// Bytes that have arrived.
    arrived: watch::Sender<u64>,
    /// Bytes that the follower has taken.
    taken: watch::Sender<u64>,
}

/// Most bytes that the far end may be ahead.
const AHEAD: u64 = 1 << 20;

impl Pacing {
    pub(super) fn note_arrived(&self, bytes: usize) {
        self.arrived.send_modify(|arrived| *arrived += bytes as u64);
    }

    /// The follower has taken all before this position.
    pub(super) fn note_taken(&self, position: u64) {
        self.taken.send_if_modified(|taken| {
            let before = std::mem::replace(taken, (*taken).max(position));
            before != *taken
        });
    }

    /// There is no follower any more.
    pub(super) fn let_go(&self) {
        self.taken.send_replace(u64::MAX);
    }

    pub(super) fn is_ahead(&self) -> bool {
        *self.arrived.borrow() >= self.limit()
    }

    /// Waits until the far end is so far ahead that it should send no more. Cancel safe.
    pub(super) async fn runs_ahead(&self) {
        let mut arrived = self.arrived.subscribe();
        drop(arrived.wait_for(|arrived| *arrived >= self.limit()).await.expect("we hold the sender"));
    }

    /// Waits until the follower is near enough that more can be taken in. Cancel safe.
    pub(super) async fn has_room(&self) {
        let mut taken = self.taken.subscribe();
        let has_room = |taken: &u64| *self.arrived.borrow() < taken.saturating_add(AHEAD);
        drop(taken.wait_for(has_room).await.expect("we hold the sender"));
    }

    fn limit(&self) -> u64 {
        self.taken.borrow().saturating_add(AHEAD)
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
        assert!(!pacing.is_ahead() && pacing.runs_ahead().now_or_never().is_none());
        pacing.note_arrived(1);
        assert!(pacing.is_ahead() && pacing.runs_ahead().now_or_never().is_some());
        assert!(pacing.has_room().now_or_never().is_none());
        pacing.note_taken(1);
        assert!(!pacing.is_ahead() && pacing.has_room().now_or_never().is_some());
        pacing.note_arrived(10 * arrived);
        pacing.let_go();
        assert!(!pacing.is_ahead() && pacing.has_room().now_or_never().is_some());
    }
}
