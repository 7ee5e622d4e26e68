use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use sshjobs_base::lock::lock;

/// Measures traffic on a connection. Channels of one connection share its link, so a new job should
/// avoid one that is busy with another job's output.
#[derive(Clone, Debug)]
pub struct Traffic(Arc<Mutex<Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    bytes: usize,
    /// Whether the window before this one was full.
    was_heavy: bool,
}

const WINDOW: Duration = Duration::from_millis(250);
/// Traffic that makes a window heavy: 4 MiB/s.
const HEAVY_BYTES: usize = 1 << 20;

impl Default for Traffic {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Window {
            began: Instant::now(),
            bytes: 0,
            was_heavy: false,
        })))
    }
}

impl Traffic {
    /// Counts received bytes. Returns whether they make the connection heavy.
    pub fn note(&self, bytes: usize) -> bool {
        let mut window = lock(&self.0);
        window.turn();
        let was_light = !window.was_heavy && window.bytes < HEAVY_BYTES;
        window.bytes += bytes;
        was_light && window.bytes >= HEAVY_BYTES
    }

    /// Whether the connection is heavily loaded now.
    pub fn is_heavy(&self) -> bool {
        let mut window = lock(&self.0);
        window.turn();
        window.was_heavy || window.bytes >= HEAVY_BYTES
    }
}

impl Window {
    fn turn(&mut self) {
        let age = self.began.elapsed();
        if age >= WINDOW {
            // An older window was followed by silence: the next bytes would have turned it.
            self.was_heavy = self.bytes >= HEAVY_BYTES && age < 2 * WINDOW;
            self.began = Instant::now();
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_makes_a_connection_heavy_and_silence_makes_it_light_again() {
        let traffic = Traffic::default();
        traffic.note(HEAVY_BYTES - 1);
        assert!(!traffic.is_heavy());
        traffic.note(1);
        assert!(traffic.is_heavy());
        tokio::time::sleep(WINDOW).await;
        assert!(traffic.is_heavy(), "the window before still counts");
        tokio::time::sleep(2 * WINDOW).await;
        assert!(!traffic.is_heavy());
    }
}
