use std::sync::Arc;

use tokio::time::Instant;

use crate::job::{
    Batch, Identity, Job, JobId, Log, LogEvent, LostWhy, Outcome, Past, Phase, Storage, wall_now,
};
use crate::output::{LineNo, Origin, Position, Ring, RingLimits, Stream};
use crate::store::{LogLimits, LogWriter, Record, Store, StoreError, StoredEnd, StoredLog};

/// A job that was opened from the store.
pub(super) struct Opened {
    pub(super) job: Arc<Job>,
    pub(super) record: Record,
    pub(super) log: Arc<StoredLog>,
    pub(super) end: StoredEnd,
}

/// Opens a job from the store. One whose process has ended is closed first.
pub(super) fn open(
    store: &dyn Store,
    id: &JobId,
    (limits, log_limits): (RingLimits, LogLimits),
) -> Result<Option<Opened>, StoreError> {
    let Some(mut record) = store.get(id)? else { return Ok(None) };
    let is_orphan =
        record.outcome.is_none() && record.owner != store.own_name() && store.owner(&record.owner).is_none();
    if is_orphan && !record.durable {
        if store.claim(&record)? {
            close(store, record.clone(), log_limits)?;
        }
        record = store.get(id)?.unwrap_or(record);
    }
    let log = store.log(id);
    let mut end = log.open(limits).map_err(|error| StoreError::Records(error.to_string()))?;
    let Ok(spec) = record.spec() else { return Ok(None) };
    let small = RingLimits { lines: 1, bytes: 0, ..limits };
    let follower = Ring::resumed(small, &end.ring.checkpoint());
    let mut ring = std::mem::replace(&mut end.ring, follower);
    if ring.newest() == LineNo::START && record.total_lines > 0 {
        // Its output has gone, and the record alone tells how much there was.
        ring = Ring::resumed(limits, &evicted(&record).into());
    }
    let mut past = record.past();
    if let (None, Some((outcome, at))) = (&record.outcome, &end.outcome) {
        (past.phase, past.ended_at) = (Phase::Ended(outcome.clone()), Some(*at));
    }
    past.last_output_at = past.last_output_at.max(end.last_output_at);
    let identity = Identity { id: id.clone(), mark: record.mark.clone(), caller: record.caller.clone() };
    let job = Arc::new(Job::begun(identity, spec, Log::resumed(ring, past)));
    note_members(&job, &record);
    job.store_in(Storage::new(Arc::clone(&log) as _, None));
    Ok(Some(Opened { job, record, log, end }))
}

/// Takes note of what a record says of a fleet's members.
pub(super) fn note_members(job: &Job, record: &Record) {
    if let Some(fleet) = job.fleet.as_ref().filter(|_| !record.members.is_empty()) {
        fleet.members().clone_from(&record.members);
    }
}

/// Where the log of a job ends whose output is gone.
fn evicted(record: &Record) -> Origin {
    let (newest, bytes) = (LineNo::new(record.total_lines), record.total_bytes);
    let stdout = Position {
        last_line: newest,
        lines: record.total_lines,
        bytes,
        raw_chars: bytes,
        clean_chars: bytes,
    };
    Origin { newest, stdout, ..Origin::default() }
}

/// Closes an attached job that was claimed: nobody records it any more.
pub(super) fn close(store: &dyn Store, mut record: Record, limits: LogLimits) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError::Records(error.to_string());
    let log = store.log(&record.id);
    let ring = RingLimits { line_bytes: limits.line_bytes, ..RingLimits::default() };
    let mut end = log.open(ring).map_err(failed)?;
    let (now, at) = (Instant::now(), wall_now());
    let (outcome, at) = match end.outcome.take() {
        Some(known) => known,
        None => {
            let outcome = Outcome::Lost(LostWhy::ServerRestarted, None);
            let events = [LogEvent::FinishStreams, LogEvent::End(outcome.clone())];
            let events = events.map(|event| (event, at, now)).to_vec();
            let batch = Batch::new(events, Some(end.ring.checkpoint()));
            store.write(&log, limits, Some(&end))?.append(&batch).map_err(failed)?;
            for stream in Stream::ALL {
                end.ring.finish(stream, at);
            }
            (outcome, at)
        }
    };
    record.has_leftovers = matches!(outcome, Outcome::Lost(..)) && record.is_running;
    record.outcome = Some(outcome);
    record.ended_at = Some(at);
    record.total_lines = end.ring.newest().value().max(record.total_lines);
    record.total_bytes = end.ring.total().max(record.total_bytes);
    record.last_output_at = record.last_output_at.max(end.last_output_at);
    store.own_name().clone_into(&mut record.owner);
    store.put(&[record])
}

/// A durable job that was claimed, to be followed from here.
pub(super) struct Resumed {
    pub(super) job: Arc<Job>,
    pub(super) log: Arc<StoredLog>,
    pub(super) writer: LogWriter,
    pub(super) record: Record,
    /// Bytes of stdout and stderr that are stored.
    pub(super) positions: (u64, u64),
}

/// Opens a durable job that was claimed, where its log ends; none when that says that the job has ended.
pub(super) fn resume(
    store: &dyn Store,
    record: Record,
    (limits, log_limits): (RingLimits, LogLimits),
) -> Result<Option<Resumed>, StoreError> {
    let failed = |error: std::io::Error| StoreError::Records(error.to_string());
    let log = store.log(&record.id);
    let mut end = log.open(limits).map_err(failed)?;
    if end.outcome.is_some() {
        return close(store, record, log_limits).map(|()| None);
    }
    let Ok(spec) = record.spec() else { return Ok(None) };
    let writer = store.write(&log, log_limits, Some(&end))?;
    let record = Record { owner: store.own_name().to_owned(), ..record };
    let past = Past { last_output_at: record.last_output_at.max(end.last_output_at), ..record.past() };
    let ring = std::mem::replace(&mut end.ring, Ring::new(limits));
    let positions = (ring.total_bytes(Stream::Stdout), ring.total_bytes(Stream::Stderr));
    let identity =
        Identity { id: record.id.clone(), mark: record.mark.clone(), caller: record.caller.clone() };
    let job = Arc::new(Job::begun(identity, spec, Log::resumed(ring, past)));
    note_members(&job, &record);
    Ok(Some(Resumed { job, log, writer, record, positions }))
}
