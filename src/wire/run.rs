use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::clamp::Clamps;
use super::leave_out::is_zero;
use super::request::parse;
use super::schema::{merged, schema_of};
use super::tail::{MOST_BYTES, MOST_LINES};
use super::{Clamped, CommandRequest, Error, Group, Members, Request, Service, Standing};
use crate::jobs::{Follow, Job, Stdin};

/// Run a command and wait for its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunRequest {
    /// What to run.
    #[serde(flatten)]
    pub start: CommandRequest,
    /// How to wait for it.
    #[serde(flatten)]
    pub options: RunOptions,
}

/// A name that is unknown to the shared arguments: those that are known are more.
fn with_own_names(mut error: Error) -> Error {
    if error.message.contains("unknown field") {
        error.message.push_str(", `wait_ms`, `max_bytes`");
    }
    error
}

/// How to wait for a command that is run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// How long to wait for the end; the job then goes on. Default 30000.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub wait_ms: Option<i64>,
    /// Bytes of output to return. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
}

impl RunRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self { start: CommandRequest::new(host, command), options: RunOptions::default() }
    }
}

impl Request for RunRequest {
    fn parse(mut object: Map<String, Value>) -> Result<Self, Error> {
        let own = ["wait_ms", "max_bytes"].iter().filter_map(|name| object.remove_entry(*name)).collect();
        Ok(Self { start: parse(object).map_err(with_own_names)?, options: parse(own)? })
    }

    fn schema() -> Map<String, Value> {
        merged(schema_of::<CommandRequest>(), schema_of::<RunOptions>())
    }
}

/// The outcome, or the job that still runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunReply {
    /// The job; follow it with ssh_tail when it still runs.
    pub job_id: String,
    /// The host it runs on.
    pub host: String,
    /// Whether the job goes on: the wait was over before it ended.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// The first lines of the output; all of them when nothing is left out, none when the first ones are no longer kept.
    pub head: Vec<String>,
    /// How many lines between head and tail are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_lines: u64,
    /// The last lines of the output, when some are left out before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Numbers of the lines here that are stderr; head begins with line 1, and tail ends with line total_lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// How many of the lines left out are no longer kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Lines printed, which is the number of the newest.
    pub total_lines: u64,
    /// How the members of a fleet stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub members: Option<Members>,
    /// The members of a fleet that has ended, by how they ended and what they printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub groups: Vec<Group>,
    /// The call that reads the lines left out, as far as they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub read_omitted: Option<String>,
    /// The call that follows the job, when it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
    /// Arguments that were out of range, and what was used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// Least time for a start, however short the wait is.
const START: Duration = Duration::from_secs(3);
/// Time limit for a host to start a command that is followed: a login may ask a person.
const FOLLOW_START: Duration = Duration::from_secs(3600);

impl Service {
    /// Starts a job with empty stdin and waits for its end. When the wait is over first, the job goes on.
    ///
    /// Cancelling ends the wait, not the job.
    pub async fn run(&self, request: RunRequest) -> Result<RunReply, Error> {
        let RunRequest { start, options } = request;
        let mut clamps = Clamps::default();
        let wait = options.wait_ms.unwrap_or(i64::from(self.defaults().run_wait_ms));
        let wait = Duration::from_millis(clamps.wait_ms("wait_ms", wait, self.limits().max_wait_ms));
        let bytes = options.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", bytes, 1..=MOST_BYTES)?;
        let deadline = Instant::now() + wait;
        let command = start.into_command(&self.jobs, Stdin::Closed)?;
        let job = command.start_within(wait.max(START)).spawn().await?;
        self.unless_closed(job.wait_within(deadline.saturating_duration_since(Instant::now()))).await;
        Ok(RunReply::of(&job, bytes, clamps.0).await)
    }
}

impl Service {
    /// What came of a command that was run, or what there is of it so far.
    pub async fn ran(&self, job_id: &str, max_bytes: Option<i64>) -> Result<RunReply, Error> {
        let mut clamps = Clamps::default();
        let bytes = max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", bytes, 1..=MOST_BYTES)?;
        Ok(RunReply::of(&self.job(job_id).await?, bytes, clamps.0).await)
    }

    /// Starts a job whose output goes to one reader, byte by byte, on a connection that it has alone: while the reader is behind, the
    /// host waits. Its stdin is open.
    ///
    /// Cancelling starts nothing, or leaves a job that [`jobs`](Self::jobs) lists.
    pub async fn follow(&self, request: CommandRequest) -> Result<Follow, Error> {
        Ok(request.into_command(&self.jobs, Stdin::Open)?.start_within(FOLLOW_START).follow().await?)
    }
}

impl RunReply {
    async fn of(job: &Job, max_bytes: usize, clamped: Vec<Clamped>) -> Self {
        let (excerpt, status) = job.excerpt(max_bytes).await;
        let (id, standing) = (job.id(), Standing::of(&status));
        let head_lines = excerpt.head.len() as u64;
        let offset = status.dropped_lines.max(head_lines);
        let behind_head = (excerpt.omitted_lines + head_lines).saturating_sub(offset);
        let kept = behind_head.min(MOST_LINES.unsigned_abs());
        let still_running = !standing.state.is_final();
        let cursor = status.total_lines;
        Self {
            job_id: id.to_owned(),
            host: job.host().to_owned(),
            still_running,
            standing,
            head: excerpt.head,
            omitted_lines: excerpt.omitted_lines,
            tail: excerpt.tail,
            stderr_lines: excerpt.stderr_lines,
            dropped_lines: status.dropped_lines,
            total_lines: status.total_lines,
            members: job.fleet().map(|fleet| fleet.counts().into()),
            groups: job
                .fleet()
                .filter(|_| !still_running)
                .map(|fleet| Group::all(fleet.summary()))
                .unwrap_or_default(),
            read_omitted: (kept > 0)
                .then(|| format!("ssh_read(job_id=\"{id}\", offset={offset}, length={kept})")),
            next: still_running
                .then(|| format!("ssh_tail(job_id=\"{id}\", since_line_no={cursor}, wait_ms=5000)")),
            clamped,
        }
    }
}
