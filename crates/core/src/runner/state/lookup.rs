use std::sync::Arc;

use sshjobs_job::{Caller, Job, JobId, Status};
use sshjobs_store::StoreError;

/// The remains of a job that is no longer kept.
#[derive(Clone, Debug)]
pub struct Tombstone {
    /// The job's id.
    pub id: JobId,
    /// The caller who started it.
    pub caller: Caller,
    /// The host it ran on.
    pub host: String,
    /// Its last status.
    pub status: Status,
}

/// Result of a search for a job id.
#[derive(Debug)]
pub enum Lookup {
    /// A job that runs, or has finished and is kept.
    Found(Arc<Job>),
    /// A job whose output was deleted.
    Expired(Box<Tombstone>),
    /// No such job, or one so old that no tombstone is left.
    Unknown,
    /// The store, which may have the job, can't be read.
    Unreadable(StoreError),
}
