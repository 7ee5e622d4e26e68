//! The verb run: a start and a wait in one call.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::command::CommandRequest;
use super::tail::{MOST_BYTES, MOST_LINES};
use crate::jobs::{Follow, Job, Stdin, Stream};
use crate::wire::clamp::Clamps;
use crate::wire::error::Error;
use crate::wire::leave_out::is_zero;
use crate::wire::request::parse;
use crate::wire::schema::{merged, schema_of};
use crate::wire::{Clamped, Group, Members, Request, Service, Standing};

/// Run a command and wait for its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunRequest {
    /// The command.
    #[serde(flatten)]
    pub start: CommandRequest,
    /// How to wait for it.
    #[serde(flatten)]
    pub options: RunOptions,
}

/// An error for an unknown name lists only the shared arguments. Adds our own.
fn with_own_names(mut error: Error) -> Error {
    if error.message.contains("unknown field") {
        error.message.push_str(", `wait_ms`, `max_bytes`");
    }
    error
}

/// How to wait for a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// Maximum wait for the end; the job then continues. Default 30000.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub wait_ms: Option<i64>,
    /// Maximum bytes of output to return. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub max_bytes: Option<i64>,
}

impl RunRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            start: CommandRequest::new(host, command),
            options: RunOptions::default(),
        }
    }
}

impl Request for RunRequest {
    fn parse(mut object: Map<String, Value>) -> Result<Self, Error> {
        // serde can't combine `flatten` with `deny_unknown_fields`, so the names are split here.
        let own = ["wait_ms", "max_bytes"]
            .iter()
            .filter_map(|name| object.remove_entry(*name))
            .collect();
        Ok(Self {
            start: parse(object).map_err(with_own_names)?,
            options: parse(own)?,
        })
    }

    fn schema() -> Map<String, Value> {
        merged(schema_of::<CommandRequest>(), schema_of::<RunOptions>())
    }
}

/// The outcome, or the job if it still runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunReply {
    /// The job; follow it with ssh_tail if it still runs.
    pub job_id: String,
    /// The host it runs on.
    pub host: String,
    /// Whether the job continues: the wait ended before it did.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// The first lines of the output; all of them if nothing is omitted, none if the first ones were evicted.
    pub head: Vec<String>,
    /// Number of lines omitted between head and tail.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_lines: u64,
    /// The last lines of the output, if lines before them are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Numbers of the lines here that are stderr; head starts with line 1, and tail ends with line total_lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// Number of omitted lines that were evicted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Number of lines printed, which is the number of the newest.
    pub total_lines: u64,
    /// Members of a fleet, by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub members: Option<Members>,
    /// Members of a fleet that has ended, grouped by outcome and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub groups: Vec<Group>,
    /// The call that reads the omitted lines, as far as they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub read_omitted: Option<String>,
    /// The call that follows the job, if it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// Minimum time for a start, however short the wait is.
const START: Duration = Duration::from_secs(3);
/// Time limit for a host to start a followed command: a login may ask a person.
const FOLLOW_START: Duration = Duration::from_secs(3600);

impl Service {
    /// Starts a job with empty stdin and waits for its end. If the wait ends first, the job
    /// continues.
    ///
    /// Cancelling ends the wait, not the job.
    pub async fn run(&self, request: RunRequest) -> Result<RunReply, Error> {
        let RunRequest { start, options } = request;
        let mut clamps = Clamps::default();
        let wait = options.wait_ms.unwrap_or(i64::from(self.defaults().run_wait_ms));
        let wait = Duration::from_millis(clamps.wait_ms("wait_ms", wait, self.longest_wait_ms()));
        let bytes = options.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", bytes, 1..=MOST_BYTES)?;
        // Before the start, which is part of the wait.
        let deadline = Instant::now() + wait;
        let command = start.into_command(&self.jobs, Stdin::Closed)?;
        let job = command.start_within(wait.max(START)).spawn().await?;
        self.unless_closed(job.wait_within(deadline.saturating_duration_since(Instant::now())))
            .await;
        Ok(RunReply::of(&job, bytes, clamps.0).await)
    }
}

impl Service {
    /// The result of a command that was run, or its output so far.
    pub async fn ran(&self, job_id: &str, max_bytes: Option<i64>) -> Result<RunReply, Error> {
        let mut clamps = Clamps::default();
        let bytes = max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", bytes, 1..=MOST_BYTES)?;
        Ok(RunReply::of(&self.job(job_id).await?, bytes, clamps.0).await)
    }

    /// Starts a job whose output goes to one reader, byte by byte, on a connection of its own:
    /// while the reader is behind, the host waits. Its stdin is open.
    ///
    /// Cancelling starts nothing, or leaves a job that [`jobs`](Self::jobs) lists.
    pub async fn follow(&self, request: CommandRequest) -> Result<Follow, Error> {
        Ok(request
            .into_command(&self.jobs, Stdin::Open)?
            .start_within(FOLLOW_START)
            .follow()
            .await?)
    }
}

impl RunReply {
    async fn of(job: &Job, max_bytes: usize, clamped: Vec<Clamped>) -> Self {
        let (excerpt, status) = job.excerpt(max_bytes).await;
        let id = job.id();
        let standing = Standing::of(&status);
        let head_lines = excerpt.head.len() as u64;
        let shown = excerpt.head.iter().chain(&excerpt.tail);
        let on_stderr = shown.filter(|line| line.stream == Stream::Stderr);
        // ssh_read counts from 0, so the first omitted line is at the length of the head, or later
        // if it was evicted.
        let offset = status.dropped_lines.max(head_lines);
        let behind_head = (excerpt.omitted_lines + head_lines).saturating_sub(offset);
        // ssh_read clamps a larger length.
        let kept = behind_head.min(MOST_LINES.unsigned_abs());
        let still_running = !standing.state.is_final();
        let cursor = status.total_lines;
        Self {
            job_id: id.to_owned(),
            host: job.host().to_owned(),
            still_running,
            standing,
            head: excerpt.head.iter().map(|line| job.display(line)).collect(),
            omitted_lines: excerpt.omitted_lines,
            tail: excerpt.tail.iter().map(|line| job.display(line)).collect(),
            stderr_lines: on_stderr.map(|line| line.line_no.value()).collect(),
            dropped_lines: status.dropped_lines,
            total_lines: status.total_lines,
            members: job.fleet().map(|fleet| fleet.counts().into()),
            groups: match job.fleet() {
                Some(fleet) if !still_running => Group::all(fleet.summary()),
                Some(_) | None => Vec::new(),
            },
            read_omitted: (kept > 0)
                .then(|| format!("ssh_read(job_id=\"{id}\", offset={offset}, length={kept})")),
            next: still_running.then(|| {
                format!("ssh_tail(job_id=\"{id}\", since_line_no={cursor}, wait_ms=5000)")
            }),
            clamped,
        }
    }
}
