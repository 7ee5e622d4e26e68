//! Copies the output of another process's job from the store while a reader here needs it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::adopt::adopt_if_orphan;
use super::open::{evicted, note_record};
use crate::runner::state::RunnerState;
use sshjobs_base::blocking::run_blocking;
use sshjobs_job::{Job, Log, LogChange, LogEvent, Outcome, wall_now};
use sshjobs_output::RingLimits;
use sshjobs_store::{Record, Store, StoreError, StoredEnd, StoredLog};

/// Interval at which the output of another process's job is read, if the store reports no news.
const GLANCE: Duration = Duration::from_millis(20);
/// The same if the store reports news, in case that some are lost.
const GLANCE_WITH_NEWS: Duration = Duration::from_millis(500);
/// Interval at which its record is read.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of checks for the record of a job whose log has ended, and their time limit.
const LAST_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const LAST_RECORD: Duration = Duration::from_secs(10);
/// Maximum frames read before other tasks get their turn.
const TURN: usize = 256;

/// Copies what another process stores of its job, as long as this process has a reader for the job.
///
/// If the other process ends, this one takes a durable job over, and continues to copy, because
/// waiting readers hold this `Job` and not the newly registered one.
pub(crate) async fn mirror(
    shared: Arc<RunnerState>,
    job: Weak<Job>,
    log: Arc<StoredLog>,
    mut end: StoredEnd,
    limits: RingLimits,
) {
    let Some(storing) = &shared.storing else { return };
    let store = &storing.store;
    // The record was read when the job was opened.
    let mut looked = Instant::now();
    let mut has_failed = false;
    // A record with an end that may not be in the log.
    let mut record_with_end: Option<Record> = None;
    // Before the first round, so that output appended after that round is reported.
    let mut news = log.news();
    let glance = if news.are_told() {
        GLANCE_WITH_NEWS
    } else {
        GLANCE
    };
    loop {
        let Some(job) = job.upgrade() else { return };
        let copying = {
            let log = Arc::clone(&log);
            let job = Arc::clone(&job);
            // The store may wait for a disk or a network.
            run_blocking(move || {
                // A reader has seen a line elsewhere that is not here yet.
                let caught_up = if job.is_awaited() {
                    log.catch_up()
                } else {
                    Ok(())
                };
                let copied = caught_up.and_then(|()| copy_some(&log, &mut end, limits, &job));
                (copied, end)
            })
        };
        let Some((copied, same_end)) = copying.await else {
            // The runtime shuts down, or a bug has ended the call.
            job.note_stale(true);
            return;
        };
        end = same_end;
        if let Some((outcome, at)) = &end.outcome
            && job.fleet.is_some()
            && !job.is_over()
        {
            // First, because readers who wait for the end are shown the members then.
            look_at_last_record(&job, store).await;
            job.mirror(&LogEvent::End(outcome.clone()), *at);
        }
        let pause = match copied {
            Ok(MirrorStep::Some) => Duration::ZERO,
            Ok(MirrorStep::All) => {
                // The record was read before this round.
                if let Some(record) = record_with_end.take() {
                    show_unstored_end(&job, &record);
                }
                job.note_stale(false);
                has_failed = false;
                // `Job::reached` needs rounds that copied everything.
                job.note_mirror_round();
                glance
            }
            Err(error) => {
                job.note_stale(true);
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!(job = %job.id, %error, "stored output can't be followed");
                }
                CHECK_INTERVAL
            }
        };
        if job.is_over() {
            look_at_last_record(&job, store).await;
            return;
        }
        if looked.elapsed() >= CHECK_INTERVAL {
            looked = Instant::now();
            let record = look_at_record(&job, store).await;
            if record.as_ref().is_some_and(|record| record.durable) {
                adopt_if_orphan(&shared, &job.id).await;
            }
            // Not with a shared store: its output may arrive after the record.
            record_with_end =
                record.filter(|record| record.outcome.is_some() && store.peers().is_none());
        }
        // Not held during the pause: `ForeignJobs` keeps a job that anything else holds.
        drop(job);
        // Resolves early if there is news. A timeout is not an error.
        timeout(pause, news.next()).await.ok();
    }
}

/// Ends a job whose end is in its record and not in its log, which was read later.
///
/// An end is written to the log before the record. So it could not be stored, and the last lines may not
/// have been stored either: they are counted as a gap.
fn show_unstored_end(job: &Job, record: &Record) {
    let Some(outcome) = &record.outcome else { return };
    if job.is_over() {
        return;
    }
    let at = record.ended_at.unwrap_or_else(wall_now);
    // An unfinished line in the log is part of the gap: its rest was not stored.
    if job.read_log(|log| log.ring().newest().value()) < record.total_lines {
        job.mirror(&LogEvent::Gap(Box::new(evicted(record).into())), at);
    }
    job.mirror(&LogEvent::End(outcome.clone()), at);
}

/// Result of copying.
enum MirrorStep {
    /// Everything that is stored.
    All,
    /// More may be stored.
    Some,
}

/// Copies frames from the store, until the end or until other tasks must get their turn.
fn copy_some(
    log: &StoredLog,
    end: &mut StoredEnd,
    limits: RingLimits,
    job: &Job,
) -> std::io::Result<MirrorStep> {
    for _ in 0..TURN {
        let has_more = log.follow(end, limits, |event, at| {
            // The end of a fleet is shown with its members' states.
            if job.fleet.is_none() || !matches!(event, LogEvent::End(_)) {
                job.mirror(event, at);
            }
        })?;
        if !has_more {
            return Ok(MirrorStep::All);
        }
    }
    Ok(MirrorStep::Some)
}

/// Copies the record of a job whose log has ended. A fleet's members are only in its record, which
/// the other process writes after the end of the log.
async fn look_at_last_record(job: &Arc<Job>, store: &Arc<dyn Store>) {
    let looking = async {
        loop {
            match read_record(job, store).await {
                Ok(Some(record)) if record.outcome.is_none() => {}
                // It was removed.
                Ok(None) => return,
                Ok(Some(record)) => return note_all_of(job, &record),
                Err(error) => tracing::debug!(job = %job.id, %error, "its record can't be read"),
            }
            sleep(LAST_CHECK_INTERVAL).await;
        }
    };
    timeout(LAST_RECORD, looking).await.ok();
}

/// Copies the state in the record of another process's job: everything except its output.
pub(crate) async fn look_at_record(job: &Arc<Job>, store: &Arc<dyn Store>) -> Option<Record> {
    let record = read_record(job, store).await.ok()??;
    note_all_of(job, &record);
    Some(record)
}

async fn read_record(job: &Arc<Job>, store: &Arc<dyn Store>) -> Result<Option<Record>, StoreError> {
    let store = Arc::clone(store);
    let id = job.id.clone();
    // `None` if the runtime shuts down.
    run_blocking(move || store.get(&id)).await.unwrap_or(Ok(None))
}

fn note_all_of(job: &Arc<Job>, record: &Record) {
    note_record(job, record);
    let mut changes = Vec::new();
    if record.is_running && job.read_log(|log| !log.phase().has_started()) {
        changes.push(LogChange::Started);
    }
    if let Some(pgid) = record.pgid
        && job.read_log(Log::pgid).is_none()
    {
        changes.push(LogChange::ProcessGroup(pgid));
    }
    if job.read_log(|log| *log.evidence() != record.evidence) {
        changes.push(LogChange::Evidence(record.evidence.clone()));
    }
    job.record(changes, Instant::now());
    // A job that failed to start has no log.
    if let Some(outcome @ Outcome::NotStarted(_)) = &record.outcome {
        job.end(outcome.clone());
    }
}
