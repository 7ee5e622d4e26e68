use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::sync::{mpsc, watch};

use crate::hosts::{HostRef, Traffic};
use sshjobs_job::Outcome;

/// Counts the output of a job's far end.
pub(crate) struct Meter {
    pub(crate) traffic: Traffic,
    pub(crate) growth: Arc<Growth>,
    pub(crate) host: HostRef,
    /// Notified with the host when a connection shared with other jobs becomes heavy.
    pub(crate) became_heavy: Option<mpsc::Sender<HostRef>>,
    /// Bytes of output after which the limit over all jobs is enforced.
    pub(crate) unseen: usize,
}

/// Output since the limit over all jobs was last enforced.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    bytes: AtomicUsize,
    /// Bytes since this process began.
    total: AtomicU64,
    /// Changes when `total` has grown by more than the allowed amount.
    much: watch::Sender<()>,
}

/// Ends of this process's jobs that an operator wants to know of.
#[derive(Debug, Default)]
pub(crate) struct EndCounts {
    pub(crate) lost: AtomicU64,
    /// Including those that were not started.
    pub(crate) refused: AtomicU64,
}

impl EndCounts {
    pub(crate) fn count(&self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Lost(..) => &self.lost,
            Outcome::Refused | Outcome::NotStarted(_) => &self.refused,
            Outcome::Ended(_) | Outcome::Closed | Outcome::TimedOut(_) => return,
        };
        count.fetch_add(1, Relaxed);
    }
}

impl Meter {
    pub(crate) fn note(&self, bytes: usize) {
        if self.traffic.note(bytes)
            && let Some(queue) = &self.became_heavy
        {
            // If the queue is full, the next job makes the additional connection itself.
            queue.try_send(self.host.clone()).ok();
        }
        self.growth.note(bytes, self.unseen);
    }
}

impl Growth {
    /// Notes output. After `unseen` bytes the limit over all jobs is enforced.
    pub(crate) fn note(&self, bytes: usize, unseen: usize) {
        self.total.fetch_add(bytes as u64, Relaxed);
        if self.bytes.fetch_add(bytes, Relaxed) + bytes >= unseen {
            // Bytes that other tasks add meanwhile are not counted. The sweep enforces the limit
            // every second anyway.
            self.bytes.store(0, Relaxed);
            self.much.send_replace(());
        }
    }

    /// Bytes of output since this process began.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.much.subscribe()
    }
}
