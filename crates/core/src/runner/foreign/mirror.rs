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
    end: StoredEnd,
    limits: RingLimits,
) {
    let Some(storing) = &shared.storing else { return };
    let store = &storing.store;
    // Before the first round, so that output appended after that round is reported.
    let mut news = log.news();
    let glance = if news.are_told() {
        GLANCE_WITH_NEWS
    } else {
        GLANCE
    };
    let mut copy = LogCopy {
        log,
        limits,
        end: Some(end),
        is_broken: false,
    };
    let mut records = RecordChecks::new();
    loop {
        let Some(job) = job.upgrade() else { return };
        let pause = match copy.next_piece(&job, store).await {
            CopyStep::More => Duration::ZERO,
            CopyStep::All => {
                records.show_unstored_end(&job);
                // `Job::reached` needs rounds that copied everything.
                job.note_mirror_round();
                glance
            }
            CopyStep::Broken => CHECK_INTERVAL,
            CopyStep::ShuttingDown => return,
        };
        if job.is_over() {
            look_at_last_record(&job, store).await;
            return;
        }
        if records.are_due() {
            let is_durable = records.look(&job, store).await;
            if is_durable {
                adopt_if_orphan(&shared, &job.id).await;
            }
        }
        // Not held during the pause: `ForeignJobs` keeps a job that anything else holds.
        drop(job);
        // Resolves early if there is news. A timeout is not an error.
        timeout(pause, news.next()).await.ok();
    }
}

/// The log of another process's job, as far as it is copied.
struct LogCopy {
    log: Arc<StoredLog>,
    limits: RingLimits,
    /// Where the copy ends. `None` while a step has it.
    end: Option<StoredEnd>,
    /// Whether the last piece could not be read.
    is_broken: bool,
}

/// Result of a step of copying.
enum CopyStep {
    /// Everything that is stored.
    All,
    /// More may be stored.
    More,
    /// The log can't be read.
    Broken,
    /// The runtime shuts down, or a bug has ended the step.
    ShuttingDown,
}

impl LogCopy {
    /// Copies the next piece, until the end or until other tasks must get their turn.
    async fn next_piece(&mut self, job: &Arc<Job>, store: &Arc<dyn Store>) -> CopyStep {
        let Some(mut end) = self.end.take() else { return CopyStep::ShuttingDown };
        let (log, limits) = (Arc::clone(&self.log), self.limits);
        let of = Arc::clone(job);
        // The store may wait for a disk or a network.
        let copying = run_blocking(move || {
            // A reader has seen a line elsewhere that is not here yet.
            let caught_up = if of.is_awaited() {
                log.catch_up()
            } else {
                Ok(())
            };
            let copied = caught_up.and_then(|()| copy_some(&log, &mut end, limits, &of));
            (copied, end)
        });
        let Some((copied, end)) = copying.await else {
            job.note_stale(true);
            return CopyStep::ShuttingDown;
        };
        Self::show_end_of_fleet(&end, job, store).await;
        self.end = Some(end);
        match copied {
            Ok(step) => {
                if matches!(step, CopyStep::All) {
                    job.note_stale(false);
                    self.is_broken = false;
                }
                step
            }
            Err(error) => {
                job.note_stale(true);
                if !std::mem::replace(&mut self.is_broken, true) {
                    tracing::warn!(job = %job.id, %error, "stored output can't be followed");
                }
                CopyStep::Broken
            }
        }
    }

    /// Shows the end of a fleet with the states of its members: readers who wait for the end are shown
    /// these then.
    async fn show_end_of_fleet(end: &StoredEnd, job: &Arc<Job>, store: &Arc<dyn Store>) {
        if let Some((outcome, at)) = &end.outcome
            && job.fleet.is_some()
            && !job.is_over()
        {
            look_at_last_record(job, store).await;
            job.mirror(&LogEvent::End(outcome.clone()), *at);
        }
    }
}

/// Looks at the record of another process's job, from time to time.
struct RecordChecks {
    looked_at: Instant,
    /// A record with an end that may not be in the log. The log is copied once more before it counts.
    with_end: Option<Record>,
}

impl RecordChecks {
    /// For a job whose record was just read.
    fn new() -> Self {
        Self {
            looked_at: Instant::now(),
            with_end: None,
        }
    }

    fn are_due(&self) -> bool {
        self.looked_at.elapsed() >= CHECK_INTERVAL
    }

    /// Copies the state in the record. Returns whether the job is durable.
    async fn look(&mut self, job: &Arc<Job>, store: &Arc<dyn Store>) -> bool {
        self.looked_at = Instant::now();
        let record = look_at_record(job, store).await;
        let is_durable = record.as_ref().is_some_and(|record| record.durable);
        // Not with a shared store: its output may arrive after the record.
        self.with_end = record.filter(|record| record.outcome.is_some() && store.peers().is_none());
        is_durable
    }

    /// After everything in the log was copied: shows an end that is only in the record.
    fn show_unstored_end(&mut self, job: &Job) {
        if let Some(record) = self.with_end.take() {
            show_unstored_end(job, &record);
        }
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

/// Copies frames from the store, until the end or until other tasks must get their turn.
fn copy_some(
    log: &StoredLog,
    end: &mut StoredEnd,
    limits: RingLimits,
    job: &Job,
) -> std::io::Result<CopyStep> {
    for _ in 0..TURN {
        let has_more = log.follow(end, limits, |event, at| {
            // The end of a fleet is shown with its members' states.
            if job.fleet.is_none() || !matches!(event, LogEvent::End(_)) {
                job.mirror(event, at);
            }
        })?;
        if !has_more {
            return Ok(CopyStep::All);
        }
    }
    Ok(CopyStep::More)
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
