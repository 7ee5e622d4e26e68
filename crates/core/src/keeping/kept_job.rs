//! A job whose output this process stores.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use sshjobs_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_job::{Batch, Job, Log};
use sshjobs_store::{Record, SegmentWriter};

/// A job whose output is stored by this process.
pub(super) struct JobBeingStored {
    pub(super) job: Arc<Job>,
    pub(super) writer: Mutex<SegmentWriter>,
    /// Bytes that the writer has written, for the record: a thread that has locked the writer may wait for a disk.
    pub(super) stored_bytes: AtomicU64,
    /// The batch that could not be stored and must be tried again before any later output.
    /// Locked only with `writer`.
    pub(super) batch_to_store_again: Mutex<Option<Arc<Batch>>>,
    /// Since when the disk has had no room for this job's output.
    pub(super) full_since: Mutex<Option<Instant>>,
    pub(super) record: Mutex<Record>,
    /// When the record was last written, or was found to be as written.
    pub(super) recorded_at: Mutex<Option<Instant>>,
    /// The record has the job's outcome.
    pub(super) is_settled: AtomicBool,
}

/// The current record of a job, not stored yet.
pub(super) struct RecordUpdate {
    pub(super) kept: Arc<JobBeingStored>,
    pub(super) record: Record,
    /// Whether some output was being written, whose bytes the record may not have.
    pub(super) is_being_written: bool,
}

/// How long the output of a durable job waits for room on the disk.
const ROOM_PATIENCE: Duration = Duration::from_secs(60);

impl JobBeingStored {
    pub(super) fn new(job: &Arc<Job>, writer: SegmentWriter, record: Record) -> Self {
        Self {
            job: Arc::clone(job),
            stored_bytes: AtomicU64::new(writer.bytes()),
            writer: Mutex::new(writer),
            batch_to_store_again: Mutex::default(),
            full_since: Mutex::default(),
            record: Mutex::new(record),
            recorded_at: Mutex::default(),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Whether the job's output waits until the disk has room: its host keeps it, and it has not waited for too long.
    pub(super) fn waits_for_room(&self, error: &Error) -> bool {
        let is_full = matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        );
        if !is_full || !self.job.spec.durable {
            return false;
        }
        let mut full_since = lock(&self.full_since);
        full_since.get_or_insert_with(Instant::now).elapsed() < ROOM_PATIENCE
    }

    /// Whether its record may be written now. A fleet's record has all of its members, so that it is written at most
    /// once in as many milliseconds as there are members. A process that resumes the fleet finds a member that
    /// was started meanwhile by its key; without the secrets of the fleet it can't, and needs the record.
    pub(super) fn is_record_due(&self) -> bool {
        let Some(fleet) = &self.job.fleet else { return true };
        if self.job.spec.durable && lock(&self.record).lacks_secrets() {
            return true;
        }
        let members = u64::try_from(fleet.lock_members().len()).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(members);
        self.job.is_over() || lock(&self.recorded_at).is_none_or(|at| at.elapsed() >= pause)
    }

    /// Its record as it is now, not stored yet.
    pub(super) fn current_record(self: Arc<Self>) -> RecordUpdate {
        // First, so that a later change marks the job as changed again.
        self.job.take_changed();
        let mut record = lock(&self.record).clone();
        record.update(&self.job.status(), self.job.read_log(Log::pgid));
        // After the status and before the bytes: once a job that has ended is not written any more, its bytes
        // are final.
        let is_being_written = self.job.is_being_written();
        record.resizes = self.job.resizes();
        if let Some(fleet) = &self.job.fleet {
            record.members.clone_from(&fleet.lock_members());
        }
        record.stored_bytes = self.stored_bytes.load(Relaxed);
        RecordUpdate {
            kept: self,
            record,
            is_being_written,
        }
    }
}
