use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::EventSource;
use crate::ssh::ChannelEvent;

/// How much comes over a connection. Channels of one connection queue behind one another, so a new job is better off on
/// another connection than on one whose link is full of somebody's output.
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
/// What makes a window heavy: 4 MiB/s.
const HEAVY_BYTES: usize = 1 << 20;

impl Default for Traffic {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Window { began: Instant::now(), bytes: 0, was_heavy: false })))
    }
}

impl Traffic {
    /// Takes note of what came; true when that makes the connection heavy.
    fn note(&self, bytes: usize) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.turn();
        let was_light = !window.was_heavy && window.bytes < HEAVY_BYTES;
        window.bytes += bytes;
        was_light && window.bytes >= HEAVY_BYTES
    }

    /// Whether the connection carries a lot just now.
    pub fn is_heavy(&self) -> bool {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.turn();
        window.was_heavy || window.bytes >= HEAVY_BYTES
    }
}

impl Window {
    fn turn(&mut self) {
        let age = self.began.elapsed();
        if age >= WINDOW {
            self.was_heavy = self.bytes >= HEAVY_BYTES && age < 2 * WINDOW;
            self.began = Instant::now();
            self.bytes = 0;
        }
    }
}

/// A source of events that counts what it delivers.
pub(super) struct Metered<S> {
    /// An event that was taken from the source before.
    pub(super) first: Option<ChannelEvent>,
    pub(super) source: S,
    pub(super) traffic: Traffic,
    pub(super) growth: Arc<Growth>,
    pub(super) host: String,
    /// Told the host when a connection that others may use has become heavy.
    pub(super) became_heavy: Option<mpsc::Sender<String>>,
    /// How much output may come before the bound over all jobs is seen to.
    pub(super) unseen: usize,
}

/// How much output has come since the bound over all jobs was last seen to, and who sees to it.
#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicUsize,
    /// Told when it is more than may pass unseen.
    much: watch::Sender<()>,
}

impl Growth {
    fn note(&self, bytes: usize, unseen: usize) {
        if self.bytes.fetch_add(bytes, Relaxed) + bytes >= unseen {
            self.bytes.store(0, Relaxed);
            self.much.send_replace(());
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.much.subscribe()
    }
}

impl<S: EventSource> EventSource for Metered<S> {
    async fn next(&mut self) -> Option<ChannelEvent> {
        let event = match self.first.take() {
            Some(event) => Some(event),
            None => self.source.next().await,
        };
        if let Some(ChannelEvent::Data(bytes) | ChannelEvent::ExtendedData(bytes)) = &event {
            if self.traffic.note(bytes.len()) {
                // Whoever is told already need not be told again.
                self.became_heavy.as_ref().map(|told| told.try_send(self.host.clone()).ok());
            }
            self.growth.note(bytes.len(), self.unseen);
        }
        event
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
