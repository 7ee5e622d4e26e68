use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::sync::{mpsc, watch};

use crate::hosts::{HostRef, Traffic};

/// Counts what a job's far end delivers.
pub(super) struct Meter {
    pub(super) traffic: Traffic,
    pub(super) growth: Arc<Growth>,
    pub(super) host: HostRef,
    /// Told the host when a connection that others may use has become heavy.
    pub(super) became_heavy: Option<mpsc::Sender<HostRef>>,
    /// Bytes of output after which the bound over all jobs is enforced.
    pub(super) unseen: usize,
}

/// Output since the bound over all jobs was last enforced.
#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicUsize,
    /// Bytes since this process began.
    total: AtomicU64,
    /// Told when it is more than may pass unseen.
    much: watch::Sender<()>,
}

impl Meter {
    pub(super) fn note(&self, bytes: usize) {
        if self.traffic.note(bytes) {
            // Whoever is told already need not be told again.
            self.became_heavy.as_ref().map(|told| told.try_send(self.host.clone()).ok());
        }
        self.growth.note(bytes, self.unseen);
    }
}

impl Growth {
    fn note(&self, bytes: usize, unseen: usize) {
        self.total.fetch_add(bytes as u64, Relaxed);
        if self.bytes.fetch_add(bytes, Relaxed) + bytes >= unseen {
            self.bytes.store(0, Relaxed);
            self.much.send_replace(());
        }
    }

    /// Bytes of output since this process began.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.much.subscribe()
    }
}
