//! Jobs that have ended in this process and whose files are to be copied back.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::{Mutex, MutexGuard, mpsc};

use sshjobs_job::{Caller, JobId};

/// Jobs that have ended in this process and whose files are to be copied back.
pub(super) struct JobsToFetch {
    sender: mpsc::Sender<JobToFetch>,
    receiver: Mutex<mpsc::Receiver<JobToFetch>>,
    /// Whether this process copies them by itself.
    is_watched: AtomicBool,
}

/// A job whose files are to be copied back.
pub(super) struct JobToFetch {
    pub(super) id: JobId,
    pub(super) caller: Caller,
}

/// Maximum jobs that wait for their turn.
pub(super) const MOST_WAITING: usize = 1000;

impl Default for JobsToFetch {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        Self {
            sender,
            receiver: Mutex::new(receiver),
            is_watched: AtomicBool::new(false),
        }
    }
}

impl JobsToFetch {
    /// Notes that a job has ended. Does not wait.
    pub(super) fn note(&self, job: &sshjobs_job::Job) {
        if job.spec.fetch.is_empty() || job.spec.member_of.is_some() || !self.is_watched() {
            return;
        }
        let ended = JobToFetch {
            id: job.id.clone(),
            caller: job.caller.clone(),
        };
        if self.sender.try_send(ended).is_err() {
            tracing::warn!(job = %job.id, "its files are not copied back: too many jobs wait for it");
        }
    }

    /// Whether this process copies files back by itself.
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// The jobs that end from now on.
    pub(super) async fn watch(&self) -> MutexGuard<'_, mpsc::Receiver<JobToFetch>> {
        let receiver = self.receiver.lock().await;
        self.is_watched.store(true, Relaxed);
        receiver
    }
}
