//! Jobs that have ended in this process and whose files are to be copied back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio::task::JoinSet;

use super::error::Error;
use super::job_results::JobResults;
use sshjobs_base::lock::lock;
use sshjobs_job::{Caller, JobId, Outcome, Phase};

/// Jobs that have ended in this process and whose files are to be copied back.
pub(super) struct JobsToFetch {
    sender: mpsc::Sender<JobToFetch>,
    receiver: Mutex<mpsc::Receiver<JobToFetch>>,
    /// Whether this process copies them by itself.
    is_watched: AtomicBool,
    /// Copies that are in progress, to the directories that are kept with jobs.
    copies: std::sync::Mutex<HashMap<JobId, SharedCopy>>,
    /// The tasks that make them.
    tasks: std::sync::Mutex<JoinSet<()>>,
}

/// A copy that several callers wait for.
type SharedCopy = Shared<BoxFuture<'static, Result<JobResults, Error>>>;

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
            copies: std::sync::Mutex::default(),
            tasks: std::sync::Mutex::default(),
        }
    }
}

impl JobsToFetch {
    /// Notes that a job has ended. Does not wait.
    pub(super) fn note(&self, job: &sshjobs_job::Job, outcome: &Outcome) {
        let has_none = job.spec.fetch.is_empty() || !has_begun(&Phase::Ended(outcome.clone()));
        if has_none || job.spec.member_of.is_some() || !self.is_watched() {
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

    /// Starts a copy of a job's files, or joins the one that is in progress. It continues without callers.
    pub(super) async fn join(
        self: &Arc<Self>,
        id: JobId,
        copying: BoxFuture<'static, Result<JobResults, Error>>,
    ) -> Result<JobResults, Error> {
        let copy = lock(&self.copies)
            .entry(id.clone())
            .or_insert_with(|| {
                let all = Arc::clone(self);
                let copying = async move {
                    let copied = copying.await;
                    lock(&all.copies).remove(&id);
                    copied
                };
                let copy = copying.boxed().shared();
                let mut tasks = lock(&self.tasks);
                while tasks.try_join_next().is_some() {}
                let running = copy.clone();
                tasks.spawn(async move { drop(running.await) });
                copy
            })
            .clone();
        copy.await
    }

    /// Receives the jobs that end from now on. From now on this process copies files by itself.
    pub(super) async fn watch(&self) -> MutexGuard<'_, mpsc::Receiver<JobToFetch>> {
        let receiver = self.receiver.lock().await;
        self.is_watched.store(true, Relaxed);
        receiver
    }
}

/// Whether the command of a job may have run, so that files may be its own.
pub(super) fn has_begun(phase: &Phase) -> bool {
    !matches!(
        phase,
        Phase::Ended(Outcome::NotStarted(_) | Outcome::Refused)
    )
}
