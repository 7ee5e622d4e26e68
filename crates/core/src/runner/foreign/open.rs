//! Opens jobs from their records and stored output.

use std::sync::Arc;

use tokio::time::Instant;

use sshjobs_job::{
    Batch, Job, JobId, Log, LogEvent, LostWhy, Outcome, Past, Phase, Positions, SpecError, Storage,
    wall_now,
};
use sshjobs_output::{LineNo, Position, Ring, RingLimits, RingOrigin, Stream};
use sshjobs_store::{LogLimits, Record, SegmentWriter, Store, StoreError, StoredEnd, StoredLog};

/// A job that was opened from the store.
pub(crate) struct ForeignLog {
    pub(crate) job: Arc<Job>,
    pub(crate) record: Record,
    pub(crate) log: Arc<StoredLog>,
    pub(crate) end: StoredEnd,
}

/// Opens a job from the store. If its process has ended, closes the job first.
pub(crate) fn open(
    store: &dyn Store,
    id: &JobId,
    limits: RingLimits,
    log_limits: LogLimits,
) -> Result<Option<ForeignLog>, StoreError> {
    let Some(mut record) = store.get(id)? else { return Ok(None) };
    let is_orphan = record.outcome.is_none()
        && record.owner != store.own_name()
        && store.owner(&record.owner).is_none();
    if is_orphan && !record.durable {
        if store.claim(&record)? {
            close(store, record.clone(), log_limits)?;
        }
        // Read again, whichever process has closed the job.
        record = store.get(id)?.unwrap_or(record);
    }
    let log = store.log(id);
    log.catch_up().map_err(unreadable)?;
    let mut end = log.open(limits).map_err(unreadable)?;
    let spec = record.spec().map_err(|error| damaged(&record.id, &error))?;
    // The mirror needs only a position in the log; the lines go into the job's own ring.
    let limits = RingLimits {
        line_bytes: end.ring.limits().line_bytes,
        ..limits
    };
    let small = RingLimits {
        lines: 1,
        bytes: 0,
        ..limits
    };
    let follower = Ring::resumed(small, &end.ring.checkpoint());
    let mut ring = std::mem::replace(&mut end.ring, follower);
    if ring.newest() == LineNo::START && record.total_lines > 0 {
        if store.peers().is_some() && record.stored_bytes > 0 {
            let why = "the server that answers does not have the job's output yet";
            return Err(StoreError::Nats(why.to_owned()));
        }
        // The output was deleted. Only the record knows how much there was.
        ring = Ring::resumed(limits, &evicted(&record).into());
    }
    // The last lines were shown, but the disk could not take them, and only the record counts them. Those
    // that are stored stay readable; the ring only continues their numbers.
    let has_unstored_end = record.outcome.is_some() && end.outcome.is_none();
    if has_unstored_end && store.peers().is_none() && ring.newest().value() < record.total_lines {
        ring = Ring::resumed(limits, &evicted(&record).into());
    }
    let mut past = record.past();
    // The log has the end before the record does. The end of a fleet is shown by `mirror`, once the
    // record has its members' states.
    if record.outcome.is_none()
        && spec.fleet.is_none()
        && let Some((outcome, at)) = &end.outcome
    {
        (past.phase, past.ended_at) = (Phase::Ended(outcome.clone()), Some(*at));
    }
    past.last_output_at = past.last_output_at.max(end.last_output_at);
    let job = Arc::new(Job::begun(
        record.identity(),
        spec,
        Log::resumed(ring, past),
    ));
    note_record(&job, &record);
    job.store_in(Storage::new(Arc::clone(&log) as _, None));
    Ok(Some(ForeignLog {
        job,
        record,
        log,
        end,
    }))
}

/// Copies the states of a fleet's members, and the sizes of a terminal, from a record.
pub(crate) fn note_record(job: &Job, record: &Record) {
    job.set_resizes(record.resizes.clone());
    if let Some(fleet) = &job.fleet
        && !record.members.is_empty()
    {
        fleet.lock_members().clone_from(&record.members);
    }
}

/// End position of a job whose output, or the last part of it, is not in the store.
pub(super) fn evicted(record: &Record) -> RingOrigin {
    let newest = LineNo::new(record.total_lines);
    let bytes = record.total_bytes;
    let stdout = Position {
        last_line: newest,
        lines: record.total_lines,
        bytes,
        raw_chars: bytes,
        clean_chars: bytes,
    };
    RingOrigin {
        newest,
        stdout,
        ..RingOrigin::default()
    }
}

/// Closes an attached job that this process has claimed: its recorder ended with its process.
pub(crate) fn close(
    store: &dyn Store,
    mut record: Record,
    limits: LogLimits,
) -> Result<(), StoreError> {
    let log = store.log(&record.id);
    log.catch_up().map_err(unreadable)?;
    let ring = RingLimits {
        line_bytes: limits.line_bytes,
        ..RingLimits::default()
    };
    let mut end = log.open(ring).map_err(unreadable)?;
    let now = Instant::now();
    let at = wall_now();
    let (outcome, at) = match end.outcome.take() {
        // Its process stored the end, and was killed before it updated the record.
        Some(known) => known,
        None => {
            let outcome = Outcome::Lost(LostWhy::ServerRestarted, None);
            let events = [LogEvent::FinishStreams, LogEvent::End(outcome.clone())];
            let events = events.map(|event| (event, at, now)).to_vec();
            let limits = with_line_bytes_of(limits, &end);
            let batch = Batch::new(events, Some(end.ring.checkpoint()));
            store.write(&log, limits, Some(&end))?.append(&batch).map_err(unreadable)?;
            for stream in Stream::ALL {
                end.ring.finish(stream, at);
            }
            (outcome, at)
        }
    };
    // A command that never ran has left no processes.
    record.has_leftovers = matches!(outcome, Outcome::Lost(..)) && record.is_running;
    record.outcome = Some(outcome);
    record.ended_at = Some(at);
    record.total_lines = end.ring.newest().value().max(record.total_lines);
    record.total_bytes = end.ring.total().max(record.total_bytes);
    record.last_output_at = record.last_output_at.max(end.last_output_at);
    // `put` changes only records that belong to this process.
    store.own_name().clone_into(&mut record.owner);
    store.put(&[record])
}

/// The limits of a log that continues: its lines are cut where its first writer has cut them, so that
/// their numbers stay.
fn with_line_bytes_of(limits: LogLimits, end: &StoredEnd) -> LogLimits {
    LogLimits {
        line_bytes: end.ring.limits().line_bytes,
        ..limits
    }
}

/// A durable job that this process has claimed and will follow.
pub(crate) struct Resumed {
    pub(crate) job: Arc<Job>,
    pub(crate) log: Arc<StoredLog>,
    pub(crate) writer: SegmentWriter,
    pub(crate) record: Record,
    /// Bytes of stdout and stderr that are stored.
    pub(crate) positions: Positions,
}

/// Opens a claimed durable job at the end of its log. `None` if the log says that the job has
/// ended.
pub(crate) fn resume(
    store: &dyn Store,
    record: Record,
    limits: RingLimits,
    log_limits: LogLimits,
) -> Result<Option<Resumed>, StoreError> {
    let log = store.log(&record.id);
    log.catch_up().map_err(unreadable)?;
    let mut end = log.open(limits).map_err(unreadable)?;
    if end.outcome.is_some() {
        return close(store, record, log_limits).map(|()| None);
    }
    let spec = record.spec().map_err(|error| damaged(&record.id, &error))?;
    let log_limits = with_line_bytes_of(log_limits, &end);
    let writer = store.write(&log, log_limits, Some(&end))?;
    let record = Record {
        owner: store.own_name().to_owned(),
        ..record
    };
    let past = Past {
        last_output_at: record.last_output_at.max(end.last_output_at),
        ..record.past()
    };
    let ring = std::mem::replace(&mut end.ring, Ring::new(limits));
    let positions = Positions {
        stdout: ring.total_bytes(Stream::Stdout),
        stderr: ring.total_bytes(Stream::Stderr),
    };
    let job = Arc::new(Job::begun(
        record.identity(),
        spec,
        Log::resumed(ring, past),
    ));
    note_record(&job, &record);
    Ok(Some(Resumed {
        job,
        log,
        writer,
        record,
        positions,
    }))
}

/// The error for a record of a job that no version of this program can have written.
pub(super) fn damaged(id: &JobId, error: &SpecError) -> StoreError {
    StoreError::Unreadable {
        job: id.to_string(),
        why: error.to_string(),
    }
}

pub(super) fn unreadable(error: std::io::Error) -> StoreError {
    if error.kind() == std::io::ErrorKind::NotConnected {
        return StoreError::Nats(error.to_string());
    }
    StoreError::Records(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeping::Storing;
    use sshjobs_job::{Caller, Draft, Exit, LogChange};
    use sshjobs_store::{DiskFault, Memory, StoreLimits};

    #[test]
    fn last_lines_that_a_full_disk_could_not_take_are_counted_by_the_next_process() {
        let log_limits = LogLimits {
            bytes: 1 << 20,
            line_bytes: 1 << 16,
            interval: 1 << 16,
        };
        let bounds = StoreLimits {
            bytes: u64::MAX,
            age: u64::MAX,
        };
        let fault = Arc::new(DiskFault::default());
        let disk = Memory::with_fault(Arc::clone(&fault));
        let (storing, requests) = Storing::new(Arc::new(disk.join()), log_limits, bounds);
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
        let record = Record {
            owner: storing.store.own_name().to_owned(),
            ..Record::new(&job, None, String::new())
        };
        storing.store.admit(&record).unwrap();
        storing.keep(&job, record, None);
        let print = |line: &'static str| {
            let change = LogChange::Append(Stream::Stdout.into(), line.into());
            job.record(vec![change], Instant::now());
        };

        print("stored\n");
        while requests.store_next_output(&storing) {}
        fault.fail_next_append_after(0);
        print("not stored\n");
        job.end(Outcome::Ended(Exit::Status(0)));
        while requests.store_next_output(&storing) {}
        requests.keep_records_once(&storing);

        let opened = open(&disk.join(), &job.id, RingLimits::default(), log_limits);
        let opened = opened.unwrap().expect("the job is stored");
        let status = opened.job.status();
        assert_eq!((status.total_lines, status.dropped_lines), (2, 1));
        assert_eq!(status.phase, Phase::Ended(Outcome::Ended(Exit::Status(0))));
    }
}
