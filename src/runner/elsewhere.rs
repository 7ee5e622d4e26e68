use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::registry::Place;
use super::shared::Shared;
use super::{Lookup, Runner};
use crate::hosts::Link;
use crate::job::{
    Batch, Caller, Change, Identity, Job, JobId, Log, LogEvent, LostWhy, Outcome, Phase, Storage, wall_now,
};
use crate::lock::lock;
use crate::output::{LineNo, Origin, Position, Ring, RingLimits};
use crate::store::{LogLimits, Record, Store, StoreError, StoredEnd, StoredLog};

/// Jobs that this process does not record, as the store knows them: finished ones, and those of other processes.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<HashMap<JobId, Known>>);

struct Known {
    job: Arc<Job>,
    record: Record,
    used: Instant,
}

/// Most jobs that are held ready, and for how long after their last use.
const MOST_KNOWN: usize = 64;
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Interval at which the output of another process's job is looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// Interval at which its record is, and at which jobs are looked for whose process has ended.
const LOOK: Duration = Duration::from_secs(1);
/// Frames that are taken before others have their turn.
const TURN: usize = 256;

impl Runner {
    /// What a caller knows under a job's name: a job of this process, of another, or of an earlier one.
    pub async fn lookup(&self, caller: &Caller, id: &JobId) -> Lookup {
        let here = self.shared.registry().lookup(caller, id);
        if !matches!(here, Lookup::Unknown) {
            return here;
        }
        let Some(storing) = &self.shared.storing else { return Lookup::Unknown };
        if let Some(job) = self.shared.elsewhere.get(id) {
            return if job.caller == *caller { Lookup::Found(job) } else { Lookup::Unknown };
        }
        let (store, limits, id) = (Arc::clone(&storing.store), self.shared.limits, id.clone());
        let (ring, log) = (limits.ring(crate::job::Pace::Free), limits.log());
        let opened = spawn_blocking(move || open(&*store, &id, (ring, log))).await;
        match opened.unwrap_or(Ok(None)) {
            Ok(Some(opened)) if opened.record.caller == *caller => {
                Lookup::Found(self.shared.elsewhere.take_in(&self.shared, opened))
            }
            Ok(_) => Lookup::Unknown,
            Err(error) => {
                tracing::warn!(%error, "a stored job can't be read");
                Lookup::Unknown
            }
        }
    }
}

impl Runner {
    /// Brings the record of a job that is not ours up to date.
    pub(super) async fn look_again(&self, job: &Arc<Job>) {
        let Some(storing) = self.shared.storing.as_ref().filter(|_| self.owner(job).is_some()) else {
            return;
        };
        if let Some(record) = look_at_record(job, &storing.store).await {
            self.shared.elsewhere.note(record);
        }
    }
}

impl Elsewhere {
    fn note(&self, record: Record) {
        if let Some(known) = lock(&self.0).get_mut(&record.id) {
            known.record = record;
        }
    }

    fn get(&self, id: &JobId) -> Option<Arc<Job>> {
        let mut known = lock(&self.0);
        let known = known.get_mut(id)?;
        known.used = Instant::now();
        Some(Arc::clone(&known.job))
    }

    /// The record of a job that is not ours, as it was when the job was opened.
    pub(super) fn record(&self, id: &JobId) -> Option<Record> {
        lock(&self.0).get(id).map(|known| known.record.clone())
    }

    /// Where such a job runs.
    pub(super) fn place(&self, id: &JobId) -> Option<Place> {
        let record = self.record(id)?;
        Some(Place { link: Weak::<Link>::new(), machine: record.machine })
    }

    fn take_in(&self, shared: &Shared, opened: Opened) -> Arc<Job> {
        let Opened { job, record, log, end } = opened;
        let mut known = lock(&self.0);
        // Somebody may have been faster.
        let entry = known.entry(job.id.clone()).or_insert_with(|| {
            if !job.is_over() {
                let (job, limits) = (Arc::downgrade(&job), shared.limits.ring(crate::job::Pace::Free));
                let store = shared.storing.as_ref().map(|storing| Arc::clone(&storing.store));
                shared.leave(mirror(job, store, (log, end), limits));
            }
            Known { job, record, used: Instant::now() }
        });
        Arc::clone(&entry.job)
    }

    pub(super) fn forget(&self, id: &JobId) {
        lock(&self.0).remove(id);
    }

    /// Lets go of jobs that nobody has asked for lately.
    pub(super) fn expire(&self) {
        let mut known = lock(&self.0);
        let is_used = |known: &Known| Arc::strong_count(&known.job) > 1;
        known.retain(|_, known| is_used(known) || known.used.elapsed() < KNOWN_FOR);
        while known.len() > MOST_KNOWN {
            let unused = known.iter().filter(|(_, known)| !is_used(known));
            let Some((oldest, _)) = unused.min_by_key(|(_, known)| known.used) else { return };
            let oldest = oldest.clone();
            known.remove(&oldest);
        }
    }
}

/// A job that was opened from the store.
struct Opened {
    job: Arc<Job>,
    record: Record,
    log: Arc<StoredLog>,
    end: StoredEnd,
}

/// Opens a job from the store. One whose process has ended is closed first.
fn open(
    store: &dyn Store,
    id: &JobId,
    (limits, log_limits): (RingLimits, LogLimits),
) -> Result<Option<Opened>, StoreError> {
    let Some(mut record) = store.get(id)? else { return Ok(None) };
    let is_orphan =
        record.outcome.is_none() && record.owner != store.own_name() && store.owner(&record.owner).is_none();
    if is_orphan {
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
    job.store_in(Storage::new(Arc::clone(&log) as _, None));
    Ok(Some(Opened { job, record, log, end }))
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

/// Makes what another process stores of its job, as long as somebody knows the job.
async fn mirror(
    job: Weak<Job>,
    store: Option<Arc<dyn Store>>,
    (log, mut end): (Arc<StoredLog>, StoredEnd),
    limits: RingLimits,
) {
    let mut looked = Instant::now();
    loop {
        let Some(job) = job.upgrade() else { return };
        let mut frames = 0;
        while frames < TURN {
            match log.follow(&mut end, limits, |event, at| job.mirror(event, at)) {
                Ok(true) => frames += 1,
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(job = %job.id, %error, "stored output can't be followed");
                    return;
                }
            }
        }
        if job.is_over() {
            return;
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if let Some(store) = &store {
                look_at_record(&job, store).await;
            }
        }
        drop(job);
        sleep(if frames == TURN { Duration::ZERO } else { GLANCE }).await;
    }
}

/// Makes what the record of another process's job tells besides its output.
async fn look_at_record(job: &Arc<Job>, store: &Arc<dyn Store>) -> Option<Record> {
    let (store, id) = (Arc::clone(store), job.id.clone());
    let record = spawn_blocking(move || store.get(&id)).await.ok()?.ok()??;
    let mut changes = Vec::new();
    if record.is_running && job.read_log(|log| *log.phase() == Phase::Starting) {
        changes.push(Change::Started);
    }
    changes.extend(record.pgid.filter(|_| job.read_log(Log::pgid).is_none()).map(Change::ProcessGroup));
    job.record(changes, Instant::now());
    // A job that could not be started has no log.
    if let Some(outcome @ Outcome::NotStarted(_)) = &record.outcome {
        job.end(outcome.clone());
    }
    Some(record)
}

/// Looks for jobs whose process has ended, and closes their records.
pub(super) async fn adopt(shared: Arc<Shared>) {
    let Some(store) = shared.storing.as_ref().map(|storing| Arc::clone(&storing.store)) else { return };
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let (store, limits) = (Arc::clone(&store), shared.limits.log());
        let adopted = spawn_blocking(move || close_orphans(&*store, limits)).await;
        if let Ok(Err(error)) = adopted {
            tracing::debug!(%error, "jobs of processes that have ended can't be looked for");
        }
    }
}

fn close_orphans(store: &dyn Store, limits: LogLimits) -> Result<(), StoreError> {
    for record in store.orphans()? {
        if store.claim(&record)? {
            tracing::info!(job = %record.id, "its process has ended: the job is lost");
            close(store, record, limits)?;
        }
    }
    Ok(())
}

/// Closes an attached job that was claimed: nobody records it any more.
fn close(store: &dyn Store, mut record: Record, limits: LogLimits) -> Result<(), StoreError> {
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
            for stream in crate::output::Stream::ALL {
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
