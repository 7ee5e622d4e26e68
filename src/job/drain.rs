use std::time::Duration;

use tokio::time::Instant;

/// The time after a command's exit in which its last output may come. A background child that keeps the streams open and is
/// silent ends it, and so does one that never falls silent.
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

/// Longest draining, in times of silence.
const MAX_SILENCES: u32 = 30;

impl Drain {
    pub(super) fn new(silence: Duration) -> Self {
        Self { silence, began: None }
    }

    /// The command has exited. Later exits change nothing.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(Began { at: now, last_event: now });
    }

    /// Something has come.
    pub(super) fn heard(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            began.last_event = now;
        }
    }

    /// The far end was held back until now: that is no time in which it was silent.
    pub(super) fn was_held(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            *began = Began { at: now, last_event: now };
        }
    }

    /// When the job is over, whether its far end is closed or not; none before the exit.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let Began { at, last_event } = self.began?;
        Some((last_event + self.silence).min(at + self.silence * MAX_SILENCES))
    }
}
