//! Ends processes that jobs of killed processes have left on hosts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::open::{ForeignLog, open};
use crate::hosts::Asking;
use crate::keeping::Storing;
use crate::runner::signal::{SignalReport, Unverified, kill};
use crate::runner::state::RunnerState;
use sshjobs_job::{JobId, Kill, Pace, Reach, Signal};
use sshjobs_store::{Filter, Record, StoreError};

/// Interval at which lost jobs that may still run are searched for.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for the last search of a process.
const LAST_SEARCH: Duration = Duration::from_secs(5);
/// Pause after the first failed attempt to end the processes of a job.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Longer than any process runs.
const NEVER: Duration = Duration::from_secs(1_000_000_000);
/// Maximum lost jobs examined in one round.
const MOST: usize = 1000;

/// Ends processes that attached jobs of killed processes have left running, as soon as any caller's
/// job reaches their host. They are identified by the job's mark, and only on the machine on which
/// the job ran.
pub(crate) async fn end_leftovers(shared: Arc<RunnerState>) {
    let Some(storing) = shared.storing.clone() else { return };
    let mut failures = EndFailures::default();
    let mut tick = interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        end_reached(&shared, &storing, &mut failures).await;
    }
}

/// Searches once more before this process ends: most commands are shorter than the interval.
pub(crate) async fn end_leftovers_at_last(shared: &Arc<RunnerState>) {
    if let Some(storing) = &shared.storing {
        // Boxed, so that the futures of callers don't nest too deeply for the compiler.
        let mut failures = EndFailures::default();
        let search = end_reached(shared, storing, &mut failures).boxed();
        drop(timeout(LAST_SEARCH, search).await);
    }
}

/// Ends the remaining processes of lost jobs on hosts with a live connection.
async fn end_reached(shared: &Arc<RunnerState>, storing: &Storing, failures: &mut EndFailures) {
    if shared.hosts.pool().is_empty() {
        return;
    }
    for record in lost(storing).await {
        if !shared.hosts.pool().is_reached(&record.host) || failures.is_too_early(&record.id) {
            continue;
        }
        let id = record.id.clone();
        match end(shared, storing, record).await {
            EndAttempt::Ended => failures.forget(&id),
            EndAttempt::Failed => failures.note(id),
            EndAttempt::Refused => failures.note_refusal(id),
        }
    }
}

/// Jobs whose remaining processes could not be ended. Each attempt may log in twice, so the pause
/// before the next one doubles.
#[derive(Default)]
struct EndFailures(HashMap<JobId, EndFailure>);

struct EndFailure {
    pause: Duration,
    next_at: Instant,
}

impl EndFailures {
    fn is_too_early(&self, id: &JobId) -> bool {
        self.0.get(id).is_some_and(|failure| Instant::now() < failure.next_at)
    }

    fn note(&mut self, id: JobId) {
        let before = self.0.get(&id).map(|failure| failure.pause);
        let pause = before.map_or(FIRST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
        let next_at = Instant::now() + pause;
        self.0.insert(id, EndFailure { pause, next_at });
    }

    /// The host did not change to the job's user. Its PAM may count each attempt with a wrong
    /// password, so that this process makes no other.
    fn note_refusal(&mut self, id: JobId) {
        let next_at = Instant::now() + NEVER;
        self.0.insert(
            id,
            EndFailure {
                pause: NEVER,
                next_at,
            },
        );
    }

    fn forget(&mut self, id: &JobId) {
        self.0.remove(id);
    }
}

fn filter() -> Filter {
    Filter {
        state: Some("lost"),
        limit: MOST,
        members: true,
        ..Filter::default()
    }
}

async fn lost(storing: &Storing) -> Vec<Record> {
    let filter = filter();
    let listed = storing.blocking(move |store| store.list(&filter)).await;
    let (records, _) = listed.and_then(Result::ok).unwrap_or_default();
    records.into_iter().filter(|record| record.has_leftovers).collect()
}

/// Result of an attempt to end the remaining processes of a lost job.
enum EndAttempt {
    /// They are confirmed dead.
    Ended,
    /// The next attempt may succeed.
    Failed,
    /// The host did not change to the user as whom the job runs.
    Refused,
}

/// Ends the remaining processes of a lost job.
async fn end(shared: &Arc<RunnerState>, storing: &Storing, record: Record) -> EndAttempt {
    let id = record.id.clone();
    let ring = shared.limits.ring(Pace::Free);
    let log = shared.limits.log();
    let opened = storing.blocking(move |store| open(store, &id, ring, log)).await;
    let Some(Ok(Some(ForeignLog { job, record, .. }))) = opened else {
        return EndAttempt::Failed;
    };
    // Registered as foreign, because `run_on_machine` looks up the job's machine there.
    let (job, _) = shared.foreign_jobs.take_in(job, record);
    let grace = Some(shared.limits.kill_grace);
    match kill(
        shared,
        &job,
        Reach::Marked,
        Kill::new(Signal::TERM, grace),
        Asking::Nobody,
    )
    .await
    {
        Ok(SignalReport {
            confirmed_dead: true,
            ..
        }) => {
            tracing::info!(job = %job.id, "ended the remaining processes of a lost job");
            settle(storing, &job.id).await;
            EndAttempt::Ended
        }
        Ok(report) if report.unverified == Some(Unverified::OtherUser) => EndAttempt::Refused,
        Ok(report) => {
            tracing::debug!(job = %job.id, ?report, "could not confirm that the remaining \
                processes of a lost job are dead");
            EndAttempt::Failed
        }
        // The processes could not be looked for: the host did not answer, or another machine (or the same
        // one after a reboot) answers to its name.
        Err(error) => {
            tracing::debug!(job = %job.id, %error, "could not end the remaining \
                processes of a lost job");
            EndAttempt::Failed
        }
    }
}

async fn settle(storing: &Storing, id: &JobId) {
    let id = id.clone();
    let settled = storing.blocking(move |store| {
        let Some(record) = store.get(&id)? else { return Ok(()) };
        store.put(&[Record {
            has_leftovers: false,
            ..record
        }])
    });
    let settled: Option<Result<(), StoreError>> = settled.await;
    if let Some(Err(error)) = settled {
        tracing::debug!(%error, "a record could not be brought up to date");
    }
}
