use tokio::sync::oneshot;

use sshjobs_base::sync::mpsc::Receiver;
use sshjobs_job::JobId;
use sshjobs_store::{CompleteSegment, Record, StoreError};

/// Receivers of the requests to a [`Storing`](super::Storing).
pub(crate) struct StoringRequests {
    /// Jobs with output to store.
    pub(super) called: Receiver<JobId>,
    /// Records to write.
    pub(super) tasks: Receiver<Task>,
    /// Closed when the [`Storing`](super::Storing) is dropped, which ends the thread that syncs.
    pub(super) end_for_sync: Receiver<()>,
    /// The same, for the thread that shows overdue output.
    pub(super) end_for_overdue: Receiver<()>,
    /// Segments to write filters for.
    pub(super) complete_segments: Receiver<CompleteSegment>,
}

/// A request to the thread that writes records.
pub(super) enum Task {
    /// Register a new job.
    Register(
        Box<Record>,
        oneshot::Sender<Result<Option<Record>, StoreError>>,
    ),
    /// Write the record now: the job has started or ended.
    Put(JobId),
    /// Note in the record of a queued job how many GPUs of its host fit.
    NoteFittingGpus(JobId, usize),
    /// Delete the record of a job that failed to start and whose id no caller has.
    Discard(JobId),
    /// Delete the record, and free the key, of a job of which nothing can have run.
    Withdraw(JobId),
    /// Store the outcome of a job that failed to start and whose id a caller has.
    Settle(Box<Record>),
    /// Bring all records up to date, then send.
    Flush(oneshot::Sender<()>),
}
