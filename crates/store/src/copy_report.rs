//! The result of copying a state directory to a cluster.

use serde::Serialize;

use sshjobs_job::JobId;

/// The result of copying a state directory to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Number of jobs that were copied and compared.
    pub copied: usize,
    /// Number of jobs that were in the cluster already.
    pub known: usize,
    /// Bytes of output that were copied, as they are stored.
    pub bytes: u64,
    /// Jobs that were not copied.
    pub left: Vec<JobLeft>,
}

/// A job that was not copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobLeft {
    /// The job.
    pub id: JobId,
    /// The reason, for people.
    pub why: String,
}
