//! The wait for a server that opens no more channels on a connection.

use std::time::Duration;

use tokio::time::sleep;

use sshjobs_ssh::ChannelError;

/// Pauses before the next request, 530 ms in all.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(160),
    Duration::from_millis(320),
];

/// The pauses between requests while a server refuses them a channel: it frees the slot of a closed
/// channel a moment later, and may be busy when the connection is new. They take 530 ms at most;
/// then it is for the pool to use another connection. This is the only wait of its kind.
///
/// ```text
/// let mut wait = SlotWait::new();
/// loop {
///     let opened = open().await;
///     if !is_refused(&opened) || !wait.pause().await {
///         return opened;
///     }
/// }
/// ```
pub struct SlotWait {
    pauses: std::array::IntoIter<Duration, 4>,
}

impl SlotWait {
    pub(crate) fn new() -> Self {
        Self {
            pauses: PAUSES.into_iter(),
        }
    }

    /// Waits before the next request. Returns false if no other one is worth while. Cancel safe.
    pub(crate) async fn pause(&mut self) -> bool {
        let Some(pause) = self.pauses.next() else { return false };
        sleep(pause).await;
        true
    }
}

/// Whether the server opens no more channels on the connection.
pub fn is_refused<T>(result: &Result<T, ChannelError>) -> bool {
    matches!(result, Err(ChannelError::OpenRefused))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_is_asked_again_for_half_a_second() {
        let begun = Instant::now();
        let mut wait = SlotWait::new();
        let mut requests = 1;

        while wait.pause().await {
            requests += 1;
        }

        assert_eq!(requests, 5);
        assert_eq!(begun.elapsed(), Duration::from_millis(530));
    }
}
