use std::sync::Arc;

use crate::job::{Caller, Job, JobId, Status};

/// What is left of a job that is no longer kept.
#[derive(Clone, Debug)]
pub struct Tombstone {
    /// Its name.
    pub id: JobId,
    /// Whose it was.
    pub caller: Caller,
    /// The host it ran on.
    pub host: String,
    /// How it stood at the end.
    pub status: Status,
}

/// What the runner knows under a job's name.
#[derive(Debug)]
pub enum Lookup {
    /// A job that runs, or is finished and kept.
    Found(Arc<Job>),
    /// A job whose output is gone.
    Expired(Box<Tombstone>),
    /// No such job, or one so old that it is forgotten.
    Unknown,
}
