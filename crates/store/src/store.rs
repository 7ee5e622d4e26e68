//! The interface of stores.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    LogLimits, Peers, Record, SegmentWriter, SharedText, StoreError, StoredEnd, StoredLog,
};
use sshjobs_job::{Caller, CursorMove, CursorName, JobId, Moved};
use sshjobs_output::{LineNo, Timestamp};

/// Records and output of jobs, shared by all processes of a user. All methods block.
pub trait Store: Send + Sync + 'static {
    /// Registers a new job of this process. If its key was used before, returns that job's record
    /// instead.
    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError>;

    /// Checks that other processes can find data that is stored now.
    ///
    /// # Errors
    /// [`StoreError::Replaced`].
    fn check(&self) -> Result<(), StoreError>;

    /// Tries whether output and records can be written. Blocking.
    ///
    /// # Errors
    /// Why not.
    fn probe(&self) -> Result<(), StoreError> {
        self.check()
    }

    /// Updates records of this process's jobs. Records that another process has claimed, or that
    /// were removed, stay unchanged.
    fn put(&self, records: &[Record]) -> Result<(), StoreError>;

    /// The record of a job.
    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError>;

    /// The last record of a job that another machine may have removed. `None` if the store keeps
    /// none: then only the process that has removed a job knows of it.
    fn tombstone(&self, _id: &JobId) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }

    /// The newest records that match a filter, and the number of all that match.
    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError>;

    /// Deletes a job: its record and its output.
    fn remove(&self, id: &JobId) -> Result<(), StoreError>;

    /// Removes a job of which nothing has begun: its key is free at once, and nothing remembers it.
    fn withdraw(&self, id: &JobId) -> Result<(), StoreError> {
        self.remove(id)
    }

    /// Unfinished jobs whose process has ended. Also durable jobs of this process that it does not
    /// record, which `is_recorded` says, if the store is that of a cluster: taking them over or
    /// handing them over has failed half-way.
    fn orphans(&self, is_recorded: &dyn Fn(&JobId) -> bool) -> Result<Vec<Record>, StoreError>;

    /// Claims a job for this process, if it still belongs to the process in `record`. Returns true
    /// for one claimant only.
    fn claim(&self, record: &Record) -> Result<bool, StoreError>;

    /// Description of the process that records a job. `None` if it has certainly ended.
    fn owner(&self, owner: &str) -> Option<String>;

    /// The socket on which a process accepts calls of others. `None` if there are no other
    /// processes.
    fn socket(&self, owner: &str) -> Option<PathBuf>;

    /// Number of jobs whose output is written at the same time.
    fn writers(&self) -> usize {
        1
    }

    /// Maximum outputs that are open for writing at the same time.
    fn most_open(&self) -> usize {
        512
    }

    /// What other machines do from now on. `None` if there are none.
    fn events(&self) -> Option<mpsc::Receiver<StoreEvent>> {
        None
    }

    /// The right of this process to give a host orders, as one number that grows each time that
    /// another machine takes the host over, and a name that distinguishes it from those of other
    /// hosts and clusters. `None` if no other machine shares the store.
    fn fence(&self, _host: &str) -> Option<(String, u64)> {
        None
    }

    /// Bytes that are free on its disk. `None` if that is not known. Blocking, for a moment.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The other replicas, if the store is that of a cluster.
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }

    /// Frees what this process remembers of a job that a machine has removed.
    fn note_removed(&self, _job: &JobId) {}

    /// Tells other machines that this process records nothing any more. Blocking, for a second at
    /// most.
    fn leave(&self) {}

    /// The directory for files that were copied back from a job's host. It goes with the job. `None` if this store keeps none.
    fn results(&self, _job: &JobId) -> Option<PathBuf> {
        None
    }

    /// Name of this process as an owner.
    fn own_name(&self) -> &str;

    /// A job's output, not opened yet.
    fn log(&self, id: &JobId) -> Arc<StoredLog>;

    /// Starts or continues to write a job's output.
    fn write(
        &self,
        log: &Arc<StoredLog>,
        limits: LogLimits,
        end: Option<&StoredEnd>,
    ) -> Result<SegmentWriter, StoreError>;

    /// Key of the fingerprints.
    fn secret(&self) -> [u8; 32];

    /// A text that all processes with this store share. Blocking.
    ///
    /// # Errors
    /// If it can't be read.
    fn shared_text(&self, name: &'static str) -> Result<Box<dyn SharedText>, StoreError>;

    /// Keeps a head (`SEQ:HASH`) of an audit log outside of its machine. Only a cluster does. Blocking.
    ///
    /// # Errors
    /// If it can't be kept.
    fn keep_audit_head(&self, _log: &str, _head: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// The cursor of a job's named reader. A new reader starts before the first line.
    fn cursor(&self, job: &JobId, name: &CursorName) -> Result<LineNo, StoreError>;

    /// Moves a named reader's cursor.
    fn move_cursor(
        &self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError>;

    /// Deletes jobs that exceed a limit. The output of the oldest finished jobs is deleted first.
    fn sweep(&self, bounds: &StoreLimits, now: Timestamp) -> Result<(), StoreError>;
}

/// What another machine has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A machine, perhaps this one, has removed a job.
    JobRemoved(JobId),
    /// A machine, perhaps this one, has deleted output of a job.
    OutputForgotten(JobId),
    /// The store can be reached again. Events of the time before are missing.
    Reconnected,
    /// Another machine has handed a host over to this one, which takes over its jobs now.
    HostGained(String),
    /// Another machine asks for a host.
    HostWanted {
        /// The host.
        host: String,
        /// Name of the machine.
        by: String,
    },
    /// Another machine has taken over a host with all of its jobs, because this one did not renew
    /// its lease in time.
    HostLost(String),
}

/// Selects records for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only jobs of this caller.
    pub caller: Option<Caller>,
    /// Only on this host.
    pub host: Option<String>,
    /// Only with this label.
    pub label: Option<String>,
    /// Only in this state, by its name on the wire.
    pub state: Option<&'static str>,
    /// Also members of fleets, which are otherwise represented by their fleet.
    pub members: bool,
    /// Maximum number of records.
    pub limit: usize,
}

impl Default for Filter {
    /// The newest hundred.
    fn default() -> Self {
        Self {
            caller: None,
            host: None,
            label: None,
            state: None,
            members: false,
            limit: 100,
        }
    }
}

/// Limits on stored jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Bytes of output of all jobs together.
    pub bytes: u64,
    /// Milliseconds for which a finished job is kept.
    pub age: u64,
}
