//! How long the output of a command is awaited after its exit.

use std::time::Duration;

use tokio::time::Instant;

/// The time after a command's exit in which its last output may arrive. It matters only if the far
/// end stays open, because a background child keeps the streams. It ends after some silence, at the
/// latest after thirty times that silence.
#[derive(Debug)]
pub(crate) struct Drain {
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
    pub(crate) fn new(silence: Duration) -> Self {
        Self {
            silence,
            began: None,
        }
    }

    /// The command has exited. Later exits change nothing.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(Began {
            at: now,
            last_event: now,
        });
    }

    /// Notes that an event arrived.
    pub(crate) fn heard(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            began.last_event = now;
        }
    }

    /// Notes that the far end was held back until now, which does not count as silence.
    pub(crate) fn was_held(&mut self, now: Instant) {
        if let Some(began) = &mut self.began {
            // Both, because a long hold would otherwise use up the longest drain.
            *began = Began {
                at: now,
                last_event: now,
            };
        }
    }

    /// End of the drain. `None` before the exit.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let Began { at, last_event } = self.began?;
        // Without the second limit, a background child that keeps printing would keep the job open.
        Some((last_event + self.silence).min(at + self.silence * MAX_SILENCES))
    }
}
