use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::clamp::Clamps;
use super::lean::is_zero;
use super::tail::{MOST_BYTES, MOST_LINES};
use super::{Clamped, Ending, Error, Service, SpawnRequest};
use crate::job::{Job, StdinPlan};
use crate::output::{LineNo, Render, Selection, Stream};

/// Run a command and wait for its end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Host name from ssh_hosts.
    pub host: String,
    /// Shell command line.
    pub command: String,
    /// Working directory; default home.
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// Variables to set; kept out of the process list.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub env: std::collections::BTreeMap<String, secrecy::SecretString>,
    /// Text for stdin. Without it stdin is empty.
    #[serde(default)]
    #[schemars(with = "String")]
    pub stdin: Option<secrecy::SecretString>,
    /// Run on a terminal, for programs that prompt. All output is then stdout.
    #[serde(default)]
    pub pty: bool,
    /// Terminal width. Default 80.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub cols: Option<i64>,
    /// Terminal height. Default 24.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub rows: Option<i64>,
    /// TERM. Default xterm-256color.
    #[serde(default)]
    #[schemars(with = "String")]
    pub term: Option<String>,
    /// Word to find the job by in ssh_jobs.
    #[serde(default)]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// End the process tree after this many seconds.
    #[serde(default)]
    #[schemars(with = "f64", range(max = 31_536_000))]
    pub timeout_s: Option<f64>,
    /// A repeated call with the same key returns the first call's job.
    #[serde(default)]
    #[schemars(with = "String")]
    pub idempotency_key: Option<String>,
    /// How long to wait for the end; the job then goes on. Default 30000.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub wait_ms: Option<i64>,
    /// Bytes of output to return. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
}

/// The outcome, or the job that still runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunReply {
    /// The job; follow it with ssh_tail when it still runs.
    pub job_id: String,
    /// The host it runs on.
    pub host: String,
    /// Whether the job goes on: the wait was over before it ended.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub ending: Ending,
    /// The first lines of the output; all of them when nothing is left out, none when the first ones are no longer kept.
    pub head: Vec<String>,
    /// How many lines between head and tail are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_lines: u64,
    /// The last lines of the output, when some are left out before them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Numbers of the lines here that are stderr; head begins with line 1, and tail ends with line total_lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// How many of the lines left out are no longer kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Lines printed, which is the number of the newest.
    pub total_lines: u64,
    /// The call that reads the lines left out, as far as they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub read_omitted: Option<String>,
    /// The call that follows the job, when it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
    /// Arguments that were out of range, and what was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// However short the wait is, a start may take so long.
const START: Duration = Duration::from_secs(3);

impl Service {
    /// Starts a job with empty stdin and waits for its end. When the wait is over first, the job goes on.
    ///
    /// Cancelling ends the wait, not the job.
    pub async fn run(&self, request: RunRequest) -> Result<RunReply, Error> {
        let mut clamps = Clamps::default();
        let wait = request.wait_ms.unwrap_or(i64::from(self.config.defaults.run_wait_ms));
        let wait = clamps.wait_ms("wait_ms", wait, self.limits().max_wait_ms);
        let bytes = request.max_bytes.unwrap_or(i64::from(self.config.defaults.max_bytes));
        let bytes = clamps.size("max_bytes", bytes, 1..=MOST_BYTES)?;
        let spawn = SpawnRequest {
            host: request.host,
            command: request.command,
            cwd: request.cwd,
            env: request.env,
            stdin: request.stdin,
            pty: request.pty,
            cols: request.cols,
            rows: request.rows,
            term: request.term,
            label: request.label,
            timeout_s: request.timeout_s,
            idempotency_key: request.idempotency_key,
        };
        let wait = Duration::from_millis(wait);
        let deadline = Instant::now() + wait;
        let job = self.start(spawn.into_spec(StdinPlan::Closed)?, wait.max(START)).await?;
        job.wait_for(deadline.saturating_duration_since(Instant::now()), |log| log.outcome().is_some()).await;
        Ok(RunReply::of(&job, bytes, clamps.0))
    }
}

impl RunReply {
    /// Half of the budget goes to the first lines, half to the last, each on a line border.
    fn of(job: &Job, max_bytes: usize, clamped: Vec<Clamped>) -> Self {
        job.read_log(|log| {
            let ring = log.ring();
            let status = log.status();
            let text = |line: crate::output::Line<'_>| line.render(Render::Clean).into_owned();
            let lines = || ring.lines_after(LineNo::START, Selection::Both);
            let count = ring.line_count();
            let complete = status.dropped_lines == 0;
            let mut budget = max_bytes;
            let mut head: Vec<String> =
                lines().map(text).take_while(|line| complete && spend(&mut budget, line)).collect();
            let mut tail = Vec::new();
            if head.len() < count {
                // When the first lines are gone there is no head, and the tail gets it all.
                let for_tail = if complete { max_bytes / 2 } else { max_bytes };
                let mut budget = max_bytes - for_tail;
                let mut half = head.iter().take_while(|line| spend(&mut budget, line)).count();
                let mut budget = for_tail;
                // No more lines than the budget has bytes.
                let behind = ring.newest().value().saturating_sub(for_tail as u64 + 1);
                let last: Vec<String> =
                    ring.lines_after(LineNo::new(behind), Selection::Both).map(text).collect();
                tail = last.into_iter().rev().take_while(|line| spend(&mut budget, line)).collect();
                tail.reverse();
                half = half.min(count - tail.len());
                head.truncate(half);
            }
            let shown = |line_no: u64| {
                line_no <= head.len() as u64 || line_no > status.total_lines - tail.len() as u64
            };
            let stderr = ring.lines_after(LineNo::START, Selection::Only(Stream::Stderr));
            let stderr_lines = stderr.map(|line| line.line_no.value()).filter(|no| shown(*no)).collect();
            let omitted_lines = status.total_lines - head.len() as u64 - tail.len() as u64;
            let ended = log.outcome().is_some();
            let id = &job.id;
            let offset = status.dropped_lines.max(head.len() as u64);
            let kept =
                (omitted_lines + head.len() as u64).saturating_sub(offset).min(MOST_LINES.unsigned_abs());
            let read_omitted =
                (kept > 0).then(|| format!("ssh_read(job_id=\"{id}\", offset={offset}, length={kept})"));
            let cursor = status.total_lines;
            let next =
                (!ended).then(|| format!("ssh_tail(job_id=\"{id}\", since_line_no={cursor}, wait_ms=5000)"));
            Self {
                job_id: id.to_string(),
                host: job.spec.host.clone(),
                still_running: !ended,
                ending: Ending::of(&status.phase),
                head,
                omitted_lines,
                tail,
                stderr_lines,
                dropped_lines: status.dropped_lines,
                total_lines: status.total_lines,
                read_omitted,
                next,
                clamped,
            }
        })
    }
}

/// Takes a line's cost from the budget; false when it does not suffice.
fn spend(budget: &mut usize, line: &str) -> bool {
    match budget.checked_sub(line.len() + 1) {
        Some(left) => {
            *budget = left;
            true
        }
        None => false,
    }
}
