//! How fast the members of a fleet have ended lately.

use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(1);

/// Counts ends by windows of a second.
pub(super) struct RecentEnds {
    window_began: Instant,
    in_window: usize,
    in_window_before: usize,
}

impl Default for RecentEnds {
    fn default() -> Self {
        Self {
            window_began: Instant::now(),
            in_window: 0,
            in_window_before: 0,
        }
    }
}

impl RecentEnds {
    /// Counts an end.
    pub(super) fn note(&mut self) {
        self.turn();
        self.in_window += 1;
    }

    /// Number of ends to expect within `time`: as many as came in the busier of the last two windows.
    pub(super) fn within(&mut self, time: Duration) -> usize {
        self.turn();
        let windows = usize::try_from(time.as_secs() / WINDOW.as_secs()).unwrap_or(usize::MAX);
        self.in_window.max(self.in_window_before).saturating_mul(windows)
    }

    fn turn(&mut self) {
        let age = self.window_began.elapsed();
        if age >= WINDOW {
            self.in_window_before = if age < 2 * WINDOW { self.in_window } else { 0 };
            self.in_window = 0;
            self.window_began = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_follows_the_ends_and_their_absence() {
        let mut ends = RecentEnds::default();
        assert_eq!(ends.within(8 * WINDOW), 0);
        for _ in 0..100 {
            ends.note();
        }
        assert_eq!(ends.within(8 * WINDOW), 800);
        tokio::time::advance(WINDOW).await;
        assert_eq!(
            ends.within(8 * WINDOW),
            800,
            "the window before still counts"
        );
        tokio::time::advance(2 * WINDOW).await;
        assert_eq!(ends.within(8 * WINDOW), 0);
    }
}
