//! The verb wait.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::jobs::{JobEntry, shortened};
use crate::clamp::Clamps;
use crate::error::Error;
use crate::leave_out::is_false;
use crate::{Clamped, Group, Service, Standing};
use sshjobs_core::jobs::{Job, ReadableJob, Verb};

/// Wait until jobs have ended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// Jobs from ssh_spawn.
    #[schemars(length(min = 1, max = 1000))]
    pub job_ids: Vec<String>,
    /// Wait for all jobs, or any.
    #[serde(default)]
    pub mode: WaitMode,
    /// Milliseconds to wait, up to 50000. Default 30000.
    #[serde(default)]
    pub wait_ms: Option<i64>,
    /// Last lines of each job that failed, or of all with last_lines_of=all. Up to 100, default 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub last_lines: i64,
    /// Jobs whose lines are returned. Default failed: those without exit status 0.
    #[serde(default)]
    pub last_lines_of: LastLinesOf,
}

/// Jobs whose lines are returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LastLinesOf {
    /// Jobs that ended with anything except status 0.
    #[default]
    Failed,
    /// All jobs.
    All,
}

/// Condition of the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WaitMode {
    /// The end of every job.
    #[default]
    All,
    /// The end of any job.
    Any,
}

/// State of the jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaitReply {
    /// One summary per job, in the requested order.
    pub jobs: Vec<JobEntry>,
    /// For a single fleet that has ended: its members, grouped by outcome and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub groups: Vec<Group>,
    /// Number of jobs that have ended.
    pub ended: usize,
    /// Whether the time limit was reached first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

const WAIT_MS: i64 = 30_000;
const MOST_JOBS: usize = 1000;
const MOST_LAST_LINES: i64 = 100;
/// Maximum bytes of a job's last lines: about a hundred lines of 80 bytes.
const LAST_LINES_BYTES: usize = 8 << 10;
/// The caller knows the command already.
const SHOWN_OF_COMMAND: usize = 60;

impl Service {
    /// Waits until all jobs, or any of them, have ended, at most until the time limit. Cancelling
    /// ends the wait, not the jobs.
    pub async fn wait(&self, request: WaitRequest) -> Result<WaitReply, Error> {
        if request.job_ids.is_empty() || request.job_ids.len() > MOST_JOBS {
            let message = format!("job_ids names {} jobs", request.job_ids.len());
            return Err(Error::invalid(message, "name 1 to 1000 jobs"));
        }
        let mut seen = HashSet::new();
        let mut jobs: Vec<WaitedJob> = Vec::new();
        for id in request.job_ids.iter().filter(|id| seen.insert(id.as_str())) {
            let job = self.job(Verb::Wait, id).await?;
            let shows_lines = request.last_lines > 0 || job.is_fleet();
            let readable = if shows_lines {
                job.readable_if_allowed().await
            } else {
                None
            };
            jobs.push(WaitedJob { job, readable });
        }
        let mut clamps = Clamps::default();
        let wait = clamps.wait_ms(
            "wait_ms",
            request.wait_ms.unwrap_or(WAIT_MS),
            self.longest_wait_ms(),
        );
        // Before the wait, so that a mistake is reported at once.
        let last_lines = clamps.size("last_lines", request.last_lines, 0..=MOST_LAST_LINES)?;
        let deadline = Instant::now() + Duration::from_millis(wait);
        let waiting = async {
            match request.mode {
                WaitMode::All => all_ended(&jobs, deadline).await,
                WaitMode::Any => any_ended(&jobs, deadline).await,
            }
        };
        // However the wait ends, the logs hold the answer.
        self.unless_closed(waiting).await;
        let entry = |waited: &WaitedJob| {
            let entry = JobEntry::of(&waited.job);
            let is_shown = request.last_lines_of == LastLinesOf::All || has_failed(&entry.standing);
            let last_lines = match &waited.readable {
                Some(job) if is_shown => job.last_lines(last_lines, LAST_LINES_BYTES),
                Some(_) | None => Vec::new(),
            };
            JobEntry {
                command: shortened(waited.job.command(), SHOWN_OF_COMMAND),
                last_lines,
                ..entry
            }
        };
        let mut entries: Vec<JobEntry> = jobs.iter().map(entry).collect();
        self.note_reasons(&mut entries).await;
        // Counted from the entries, so that the number agrees with the states in this reply.
        let ended = entries.iter().filter(|entry| entry.standing.state.is_final()).count();
        let wanted = if request.mode == WaitMode::All {
            jobs.len()
        } else {
            1
        };
        Ok(WaitReply {
            jobs: entries,
            groups: groups(&jobs),
            ended,
            // Also true if the service is closing; the caller then waits again.
            timed_out: ended < wanted,
            clamped: clamps.0,
        })
    }
}

/// A job that is waited for.
struct WaitedJob {
    job: Job,
    /// The job with leave to show its lines. `None` if the reply shows none, or the caller may know only
    /// that it has ended.
    readable: Option<ReadableJob>,
}

/// The members of a fleet with their output. Empty for a caller who may know only that it has ended.
fn groups(jobs: &[WaitedJob]) -> Vec<Group> {
    match jobs {
        [
            WaitedJob {
                readable: Some(job),
                ..
            },
        ] if job.is_over() => job.fleet_summary().map(Group::all).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn has_failed(standing: &Standing) -> bool {
    standing.state.is_final() && standing.exit_status != Some(0)
}

async fn all_ended(jobs: &[WaitedJob], deadline: Instant) {
    for WaitedJob { job, .. } in jobs {
        // One after the other: all share the deadline, and a job that has ended returns at once.
        job.wait_within(deadline.saturating_duration_since(Instant::now())).await;
    }
}

async fn any_ended(jobs: &[WaitedJob], deadline: Instant) {
    let mut ends: FuturesUnordered<_> = jobs.iter().map(|waited| waited.job.wait()).collect();
    // However the wait ends, the logs hold the answer.
    drop(timeout_at(deadline, ends.next()).await);
}
