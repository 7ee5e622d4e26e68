use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::clamp::Clamps;
use super::{Clamped, Code, Error, JobEntry, Service};
use crate::job::Job;

/// Wait for the end of jobs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// The jobs, as ssh_spawn named them; 1 to 1000.
    pub job_ids: Vec<String>,
    /// all: until every one has ended; any: until one of them has.
    #[serde(default)]
    pub mode: WaitMode,
    /// How long to wait, in milliseconds; at most 50000 unless the server is configured otherwise. Default 30000.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub wait_ms: Option<i64>,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WaitMode {
    /// The end of every job.
    #[default]
    All,
    /// The end of one of them.
    Any,
}

/// How the jobs stand.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WaitReply {
    /// One summary per job, in the order asked for.
    pub jobs: Vec<JobEntry>,
    /// How many of them have ended.
    pub ended: usize,
    /// Whether the wait was over before what was waited for.
    pub timed_out: bool,
    /// Arguments that were out of range, and what was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

const WAIT_MS: i64 = 30_000;
const MOST_JOBS: usize = 1000;

impl Service {
    /// Waits until all jobs, or any of them, have ended, or time is up. Cancelling ends the wait, not the jobs.
    pub async fn wait(&self, request: WaitRequest) -> Result<WaitReply, Error> {
        if request.job_ids.is_empty() || request.job_ids.len() > MOST_JOBS {
            let message = format!("job_ids names {} jobs", request.job_ids.len());
            return Err(Error::new(Code::InvalidArgument, message, "name 1 to 1000 jobs"));
        }
        let mut seen = HashSet::new();
        let ids = request.job_ids.iter().filter(|id| seen.insert(id.as_str()));
        let jobs: Vec<Arc<Job>> = ids.map(|id| self.job(id)).collect::<Result<_, _>>()?;
        let mut clamps = Clamps::default();
        let wait = clamps.wait_ms("wait_ms", request.wait_ms.unwrap_or(WAIT_MS), self.limits().max_wait_ms);
        let deadline = Instant::now() + Duration::from_millis(wait);
        match request.mode {
            WaitMode::All => all_ended(&jobs, deadline).await,
            WaitMode::Any => any_ended(&jobs, deadline).await,
        }
        let entries: Vec<JobEntry> = jobs.iter().map(|job| JobEntry::of(job)).collect();
        let ended = entries.iter().filter(|entry| entry.ending.state.is_final()).count();
        let wanted = if request.mode == WaitMode::All { jobs.len() } else { 1 };
        Ok(WaitReply { jobs: entries, ended, timed_out: ended < wanted, clamped: clamps.0 })
    }
}

async fn all_ended(jobs: &[Arc<Job>], deadline: Instant) {
    for job in jobs {
        job.wait_for(deadline.saturating_duration_since(Instant::now()), |log| log.outcome().is_some()).await;
    }
}

async fn any_ended(jobs: &[Arc<Job>], deadline: Instant) {
    let mut waits = JoinSet::new();
    for job in jobs.iter().map(Arc::clone) {
        let patience = deadline.saturating_duration_since(Instant::now());
        waits.spawn(async move { job.wait_for(patience, |log| log.outcome().is_some()).await });
    }
    // However the wait ends, the logs hold the answer.
    drop(timeout_at(deadline, waits.join_next()).await);
}
