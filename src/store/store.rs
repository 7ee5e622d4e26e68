use std::sync::Arc;

use super::{LogLimits, LogWriter, Record, StoredEnd, StoredLog};
use crate::job::{Caller, JobId};
use crate::output::Timestamp;

/// Where records and output of jobs are kept, by all processes of a user at once. Everything here blocks.
pub trait Store: Send + Sync + 'static {
    /// Takes in a new job of this process. With a key that was used before, returns the record of the job it was used for instead.
    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError>;

    /// Brings records of this process's jobs up to date. Those that another process has claimed, or that were removed, stay as they
    /// are.
    fn put(&self, records: &[Record]) -> Result<(), StoreError>;

    /// The record of a job.
    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError>;

    /// The records that fit a filter, the newest first, and how many do.
    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError>;

    /// Removes a job: its record and its output.
    fn remove(&self, id: &JobId) -> Result<(), StoreError>;

    /// The jobs that have not ended and whose process has.
    fn orphans(&self) -> Result<Vec<Record>, StoreError>;

    /// Makes a job this process's, if it is still that of the process in `record`; true for one claimant only.
    fn claim(&self, record: &Record) -> Result<bool, StoreError>;

    /// The process that records a job, in a few words; none when it has ended.
    fn owner(&self, owner: &str) -> Option<String>;

    /// The name of this process, by which its jobs are known.
    fn own_name(&self) -> &str;

    /// A job's output, not opened yet.
    fn log(&self, id: &JobId) -> Arc<StoredLog>;

    /// Goes on writing to a job's output, or begins to.
    fn write(
        &self,
        log: &Arc<StoredLog>,
        limits: LogLimits,
        end: Option<&StoredEnd>,
    ) -> Result<LogWriter, StoreError>;

    /// What fingerprints are keyed with.
    fn secret(&self) -> [u8; 32];

    /// Lets go of what is too old, or too much. Output of finished jobs goes first, the oldest first.
    fn sweep(&self, bounds: &Bounds, now: Timestamp) -> Result<(), StoreError>;
}

/// Which records to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Of this caller.
    pub caller: Option<Caller>,
    /// On this host.
    pub host: Option<String>,
    /// With this label.
    pub label: Option<String>,
    /// In this state, by its name on the wire.
    pub state: Option<&'static str>,
    /// Also members of fleets, which the job of their fleet stands for otherwise.
    pub members: bool,
    /// At most so many.
    pub limit: usize,
}

impl Default for Filter {
    /// The newest hundred.
    fn default() -> Self {
        Self { caller: None, host: None, label: None, state: None, members: false, limit: 100 }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of output over all jobs.
    pub bytes: u64,
    /// Milliseconds for which a finished job is kept.
    pub age: u64,
}

/// Why the store can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The state directory can't be made, read or written.
    #[error("{path} can't be used: {source}")]
    Io {
        /// Where.
        path: String,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// A newer sshjobs has written it.
    #[error("{path} was written by a newer sshjobs (schema {found}; this one knows {known})")]
    Newer {
        /// Where.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest schema that is known here.
        known: i64,
    },
    /// The records can't be read or written.
    #[error("the records can't be used: {0}")]
    Records(String),
}

#[cfg(test)]
mod tests;
