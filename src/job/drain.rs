use std::time::Duration;

use tokio::time::Instant;

/// The time after a command's exit in which its last output may come. It ends after some silence, when a background child
/// keeps the streams open, and in any case after thirty times as long.
#[derive(Debug)]
pub(super) struct Drain {
    /// Silence that ends it.
    silence: Duration,
    began: Option<Began>,
}

#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    last_event: Instant,
}

/// Longest drain, as a multiple of the silence that ends it.
const MAX_SILENCES: u32 = 30;

impl Drain {
    pub(super) fn new(silence: Duration) -> Self {
        Self { silence, began: None }
    }

    /// The command has exited. Later exits change nothing.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(Began { at: now, last_event: now });
    }

    /// An event has come.
    pub(super) fn heard(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            began.last_event = now;
        }
    }

    /// The far end was held back until now, which does not count as silence.
    pub(super) fn was_held(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            *began = Began { at: now, last_event: now };
        }
    }

    /// When the drain ends; none before the exit.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let Began { at, last_event } = self.began?;
        Some((last_event + self.silence).min(at + self.silence * MAX_SILENCES))
    }
}
