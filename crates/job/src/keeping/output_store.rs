//! The store of a job's output, as the job sees it.

use crate::JobId;

/// Stores a job's output before it is shown.
pub trait OutputStore: Send + Sync {
    /// Reports that a job has output to store. The store takes it with `Job::take_batch` and shows
    /// it with `Job::show`. Never waits.
    fn notify(&self, job: &JobId);

    /// Reports that a job's record is out of date. Not called again until
    /// [`Job::take_changed`](crate::Job::take_changed). Never waits.
    fn note_change(&self, job: &JobId);

    /// Adds to the number of pending bytes (or subtracts, if negative). Never waits.
    fn account(&self, bytes: isize);

    /// How it gets on with the output of all jobs. Never waits.
    fn load(&self) -> StoreLoad;

    /// Whether the end of a job waits for the store if its output was shown before it was stored.
    fn end_of_job(&self) -> EndOfJob;
}

/// How a store gets on with the output of all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLoad {
    /// It makes progress.
    Light,
    /// It makes progress, but much output of all jobs waits for it.
    Heavy,
    /// It has stored nothing for some seconds, although output waits for it.
    StandsStill,
    /// It stands still, and so much output of all jobs waits for it that no more may.
    IsFull,
}

/// Whether the end of a job waits for the store if its output was shown before it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfJob {
    /// Only readers of this process follow the job.
    IsShownAtOnce,
    /// It waits until it is stored, so that other machines learn of it, and how many lines it has.
    WaitsForStore,
}
