//! The work of the thread `sshjobs-records`, which writes the records of jobs, and requests to it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::health::warn;
use super::kept_job::{JobBeingStored, RecordUpdate};
use super::requests::Task;
use super::storing::Storing;
use sshjobs_base::sync::atomic::Ordering::Relaxed;
use sshjobs_base::sync::lock;
use sshjobs_job::{Job, JobId, wall_now};
use sshjobs_store::{Record, StoreError};

/// Resolves when a job is registered in the store.
pub(crate) type Registration = BoxFuture<'static, Result<Option<Record>, StoreError>>;

/// Time limit for registering a job in the store.
const REGISTRATION_TIME: Duration = Duration::from_secs(5);

/// Time limits for bringing records up to date: before they are read, and before one is deleted or
/// the process ends.
pub(crate) const FLUSH_TO_READ: Duration = Duration::from_millis(500);
pub(crate) const FLUSH_TO_END: Duration = Duration::from_secs(30);

impl Storing {
    /// Registers a new job. Resolves to the existing record if its key was already used. Bounded in
    /// time.
    pub(crate) fn register(&self, record: &Record) -> Registration {
        let (sender, registered) = oneshot::channel();
        let record = Record {
            owner: self.store.own_name().to_owned(),
            ..record.clone()
        };
        // A thread that has ended has dropped its receiver; then the reply's sender is dropped too.
        self.tasks.send(Task::Register(Box::new(record), sender)).ok();
        // The request is sent already: an attached job is launched while this future waits.
        async move {
            match timeout(REGISTRATION_TIME, registered).await {
                Ok(Ok(registered)) => registered,
                Ok(Err(_)) => Err(StoreError::Records("the store has stopped".to_owned())),
                Err(_) => Err(StoreError::Records(format!(
                    "no answer within {REGISTRATION_TIME:?}"
                ))),
            }
        }
        .boxed()
    }

    /// Deletes the record of a job that failed to start, unless a caller has its id. Frees its key if nothing can have
    /// run.
    pub(crate) fn settle(
        &self,
        job: &Job,
        mut record: Record,
        is_known: bool,
        may_have_begun: bool,
    ) {
        record.owner = self.store.own_name().to_owned();
        record.update(&job.status(), None);
        let task = if is_known {
            Task::Settle(Box::new(record))
        } else if may_have_begun {
            Task::Discard(job.id.clone())
        } else {
            Task::Withdraw(job.id.clone())
        };
        // The queue keeps the order, so a registration that still waits is handled before this.
        self.tasks.send(task).ok();
    }

    /// Requests that the record of a job be written soon.
    pub(crate) fn touch(&self, id: &JobId) {
        self.tasks.send(Task::Put(id.clone())).ok();
    }

    /// Notes in the record of a queued job how many GPUs of its host fit, so that other processes can say what the job waits for.
    pub(crate) fn note_fitting_gpus(&self, id: &JobId, fitting: usize) {
        self.tasks.send(Task::NoteFittingGpus(id.clone(), fitting)).ok();
    }

    /// The queue of tasks keeps the order, so that a job that has been cancelled meanwhile stays as it is.
    fn put_fitting_gpus(&self, id: &JobId, fitting: usize) -> Result<(), StoreError> {
        let Some(mut record) = self.store.get(id)? else { return Ok(()) };
        if record.outcome.is_some() {
            return Ok(());
        }
        record.evidence.fitting_gpus = Some(fitting);
        self.store.put(&[record])
    }

    /// Writes the records of all changed jobs. Resolves after the attempt, or after `time_limit`, because
    /// another process may hold the database.
    pub(crate) async fn flush(&self, time_limit: Duration) {
        let (sender, flushed) = oneshot::channel();
        self.tasks.send(Task::Flush(sender)).ok();
        timeout(time_limit, flushed).await.ok();
    }

    /// Writes the records of all changed jobs.
    pub(super) fn put_changed(&self) -> Result<(), StoreError> {
        let changed = std::mem::take(&mut *lock(&self.changed));
        self.put_due_records(changed)
    }

    /// Writes the records of these jobs, except of large fleets that were written not long ago.
    pub(super) fn put_due_records(&self, ids: HashSet<JobId>) -> Result<(), StoreError> {
        let (due, later): (Vec<_>, Vec<_>) =
            self.kept_jobs(&ids).into_iter().partition(|kept| kept.is_record_due());
        lock(&self.changed).extend(later.into_iter().map(|kept| kept.job.id.clone()));
        self.put_records(due)
    }

    fn kept_jobs(&self, ids: &HashSet<JobId>) -> Vec<Arc<JobBeingStored>> {
        let all = lock(&self.kept);
        ids.iter().filter_map(|id| all.get(id).cloned()).collect()
    }

    /// Writes the records of these jobs. Those that have ended are settled then.
    fn put_records(&self, jobs: Vec<Arc<JobBeingStored>>) -> Result<(), StoreError> {
        let updates: Vec<RecordUpdate> =
            jobs.into_iter().map(JobBeingStored::current_record).collect();
        let now = wall_now();
        let records: Vec<Record> = updates
            .iter()
            // `seen_at` is set only in the written copy, so that time alone changes no record.
            .filter(|update| *lock(&update.kept.record) != update.record)
            .map(|update| Record {
                seen_at: now,
                ..update.record.clone()
            })
            .collect();
        if !records.is_empty()
            && let Err(error) = self.store.put(&records)
        {
            self.health.count_error();
            // The next round tries again.
            lock(&self.changed).extend(updates.into_iter().map(|update| update.record.id));
            return Err(error);
        }

        for update in updates {
            let RecordUpdate {
                kept,
                record,
                is_being_written,
            } = update;
            let is_over = record.outcome.is_some();
            // A fleet's log does not change when the state of a member does.
            let changes_unnoticed = !is_over && kept.job.fleet.is_some();
            let may_lack_bytes = is_over && is_being_written;
            if changes_unnoticed || may_lack_bytes {
                lock(&self.changed).insert(record.id.clone());
            }
            *lock(&kept.recorded_at) = Some(Instant::now());
            *lock(&kept.record) = record;
            if is_over && !may_lack_bytes {
                kept.is_settled.store(true, Relaxed);
            }
        }
        Ok(())
    }

    /// Handles several requests. Records are written together, in one transaction.
    pub(super) fn do_tasks(&self, tasks: impl Iterator<Item = Task>) {
        let mut due = HashSet::new();
        let mut flushes = Vec::new();
        for task in tasks {
            match task {
                // Fails only if the caller has gone away.
                Task::Register(record, sender) => drop(sender.send(self.store.admit(&record))),
                Task::Put(id) => drop(due.insert(id)),
                Task::NoteFittingGpus(id, fitting) => warn(self.put_fitting_gpus(&id, fitting)),
                Task::Discard(id) => warn(self.store.remove(&id)),
                Task::Withdraw(id) => warn(self.store.withdraw(&id)),
                Task::Settle(record) => warn(self.store.put(std::slice::from_ref(&*record))),
                Task::Flush(sender) => flushes.push(sender),
            }
        }
        if flushes.is_empty() {
            warn(self.put_due_records(due));
        } else {
            due.extend(std::mem::take(&mut *lock(&self.changed)));
            warn(self.put_records(self.kept_jobs(&due)));
            // Also after a failure: the caller then reads the older records.
            for sender in flushes {
                sender.send(()).ok();
            }
        }
    }
}
