//! The verb run: a start and a wait in one call.

use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::command::CommandRequest;
use super::displayed::displayed;
use super::jobs::{FirstError, HintFacts, ResultsEntry, first_error, hint};
use super::tail::{KnownOutput, MOST_BYTES, MOST_LINES, TailReply, TailRequest, optional_regex};
use crate::clamp::Clamps;
use crate::error::{Code, Error};
use crate::leave_out::is_zero;
use crate::request::parse;
use crate::schema::{merged, schema_of};
use crate::{Clamped, Group, KeepArg, Members, Service, Standing, WireRequest};
use sshjobs_core::jobs::{
    ExcerptBudget, FleetCounts, Follow, ReadableJob, Status, Stdin, Stream, Verb,
};

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

/// Names of the arguments of [`RunOptions`].
const OPTIONS: [&str; 5] = ["wait_ms", "max_bytes", "keep", "filter", "until"];

/// An error for an unknown name lists only the shared arguments. Adds our own.
fn with_own_names(mut error: Error) -> Error {
    if error.message.contains("unknown field") {
        for name in OPTIONS {
            error.message.push_str(", `");
            error.message.push_str(name);
            error.message.push('`');
        }
    }
    error
}

/// How to wait for a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// Maximum wait; the job then continues. Default 30000.
    #[serde(default)]
    pub wait_ms: Option<i64>,
    /// Maximum bytes of output. Default: 8192, or 1536 of longer output.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_bytes: Option<i64>,
    /// Return one page: the first lines, or the last.
    #[serde(default)]
    pub keep: Option<KeepArg>,
    /// Return only lines that match this regex.
    #[serde(default)]
    pub filter: Option<String>,
    /// Return when a line matches this regex.
    #[serde(default)]
    pub until: Option<String>,
}

impl RunOptions {
    fn wants_page(&self) -> bool {
        self.keep.is_some() || self.filter.is_some() || self.until.is_some()
    }
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

impl WireRequest for RunRequest {
    fn parse(mut object: Map<String, Value>) -> Result<Self, Error> {
        // serde can't combine `flatten` with `deny_unknown_fields`, so the names are split here.
        let own = OPTIONS.iter().filter_map(|name| object.remove_entry(*name)).collect();
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
    #[serde(default)]
    pub head: Vec<String>,
    /// The last lines of stderr that are between head and tail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_tail: Vec<String>,
    /// Number of lines between head and tail; those in stderr_tail count, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_lines: u64,
    /// The last lines of the output, if lines before them are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Numbers of the lines here that are stderr, also of those in stderr_tail; head starts with line 1, and tail ends with line total_lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub stderr_lines: Vec<u64>,
    /// Files that were copied back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub results: ResultsEntry,
    /// Number of omitted lines that were evicted.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub dropped_lines: u64,
    /// Number of lines printed, which is the number of the newest.
    pub total_lines: u64,
    /// With keep, filter or until: a page as ssh_tail returns it, instead of head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub page: Option<Box<TailReply>>,
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
    pub read_omitted: Option<String>,
    /// Of a failed command whose output is cut: the first line that looks like an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub first_error: Option<FirstError>,
    /// The likely next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub hint: Option<String>,
    /// The call that follows the job, if it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
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
        let run_on = |start| {
            let options = options.clone();
            self.run_on(RunRequest { start, options }).boxed()
        };
        self.on_any(start, run_on).await
    }

    async fn run_on(&self, request: RunRequest) -> Result<RunReply, Error> {
        if let Some(replica) = self.replica_of_host(&request.start.host).await? {
            return self.perform_at(&replica, "run", &request).await;
        }
        // Boxed, because without optimization the callers of a future this large overflow the stack.
        Box::pin(self.start_and_wait(request)).await
    }

    async fn start_and_wait(&self, request: RunRequest) -> Result<RunReply, Error> {
        let RunRequest { start, options } = request;
        let mut clamps = Clamps::default();
        let wait = options.wait_ms.unwrap_or(i64::from(self.defaults().run_wait_ms));
        let wait = Duration::from_millis(clamps.wait_ms("wait_ms", wait, self.longest_wait_ms()));
        let budget = budget(options.max_bytes, &mut clamps)?;
        // Before the start, so that a mistake in a pattern starts nothing.
        optional_regex("filter", options.filter.as_deref())?;
        optional_regex("until", options.until.as_deref())?;
        // Before the start, which is part of the wait.
        let deadline = Instant::now() + wait;
        // With `until` on a terminal, the caller answers the program's prompt later, with ssh_write.
        let without_stdin = if start.pty && options.until.is_some() {
            Stdin::Open
        } else {
            Stdin::Closed
        };
        let start = self.with_tree(start).await?;
        let gives_files = !start.fetch.is_empty();
        let (target, command) = start.into_command(&self.jobs, without_stdin)?;
        let job = self.jobs.run(target, command.start_within(wait.max(START))).await?;
        let id = job.id().to_owned();
        let left = deadline.saturating_duration_since(Instant::now());
        if options.until.is_none() {
            self.unless_closed(job.wait_within(left)).await;
        }
        let job = job.readable(Verb::Run).await;
        let job = job.map_err(|error| after_start(id.as_str(), error.into()))?;
        if options.wants_page() {
            let page = Box::pin(self.page_of_run(&job, options, left)).await;
            let page = page.map_err(|error| after_start(job.id(), error))?;
            return Ok(RunReply::with_page(&job, page, clamps.0));
        }
        let mut reply = Box::pin(RunReply::of(&job, budget, clamps.0)).await;
        if gives_files && !reply.still_running {
            reply.results = self.results_within(job.id(), deadline).await;
        }
        Ok(reply)
    }

    /// The output as ssh_tail returns it, up to a line that matches `until`.
    async fn page_of_run(
        &self,
        job: &ReadableJob,
        options: RunOptions,
        left: Duration,
    ) -> Result<TailReply, Error> {
        let wait = if options.until.is_some() {
            u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
        } else {
            0
        };
        let request = TailRequest {
            // The last lines, because those before them are most often progress.
            keep: options.keep.unwrap_or(KeepArg::Last),
            filter: options.filter,
            until: options.until,
            max_bytes: Some(options.max_bytes.unwrap_or(WHOLE_OUTPUT_BYTES)),
            ..TailRequest::new(job.id(), 0, wait)
        };
        // Who may run a command may read what it prints meanwhile.
        self.tail_allowed(job, request, KnownOutput::default()).await
    }
}

/// Longest output that is returned whole by default, in bytes.
const WHOLE_OUTPUT_BYTES: i64 = 8192;
/// Bytes that are returned of a longer output by default: a part is worth less of a model's context.
const EXCERPT_BYTES: usize = 1536;

pub(super) fn budget(max_bytes: Option<i64>, clamps: &mut Clamps) -> Result<ExcerptBudget, Error> {
    let whole = max_bytes.unwrap_or(WHOLE_OUTPUT_BYTES);
    let whole = clamps.size("max_bytes", whole, 1..=MOST_BYTES)?;
    let cut = if max_bytes.is_some() {
        whole
    } else {
        EXCERPT_BYTES
    };
    Ok(ExcerptBudget { whole, cut })
}

/// An error after the command was started: a caller must not start it again.
pub(super) fn after_start(job_id: &str, error: Error) -> Error {
    let message = format!(
        "{job_id} was started, but its output can't be read: {}",
        error.message
    );
    Error {
        retryable: false,
        ..Error::new(
            error.code,
            message,
            "read it with ssh_tail, under this job_id",
        )
    }
}

impl Service {
    /// The result of a command that was run, or its output so far.
    pub async fn ran(&self, job_id: &str, max_bytes: Option<i64>) -> Result<RunReply, Error> {
        let mut clamps = Clamps::default();
        let budget = budget(max_bytes, &mut clamps)?;
        let job = match self.readable(Verb::Run, job_id).await {
            Err(error) if error.code == Code::PolicyDenied => {
                self.readable(Verb::Read, job_id).await?
            }
            found => found?,
        };
        Ok(RunReply::of(&job, budget, clamps.0).await)
    }

    /// Starts a job whose output goes to one reader, byte by byte, on a connection of its own:
    /// while the reader is behind, the host waits. Its stdin is open.
    ///
    /// Cancelling starts nothing, or leaves a job that [`jobs`](Self::jobs) lists.
    pub async fn follow(&self, request: CommandRequest) -> Result<Follow, Error> {
        self.on_any(request, |request| self.follow_on(request).boxed()).await
    }

    async fn follow_on(&self, request: CommandRequest) -> Result<Follow, Error> {
        let request = self.with_tree(request).await?;
        let (target, command) = request.into_command(&self.jobs, Stdin::Open)?;
        Ok(self.jobs.follow(target, command.start_within(FOLLOW_START)).await?)
    }
}

impl Service {
    /// Follows a terminal job byte by byte from now on, for a second terminal. Also returns the
    /// bytes that make that terminal show the job's screen.
    pub async fn attach(&self, job_id: &str) -> Result<(Vec<u8>, Follow), Error> {
        let job = self.readable(Verb::Tail, job_id).await?;
        // Its keys go to the job.
        self.job(Verb::Write, job_id).await?;
        Ok(job.follow_screen().await?)
    }
}

impl RunReply {
    /// The state of the job, without output.
    fn without_output(job: &ReadableJob, status: &Status, clamped: Vec<Clamped>) -> Self {
        let id = job.id();
        let standing = Standing::of(status);
        let still_running = !standing.state.is_final();
        let cursor = status.total_lines;
        Self {
            job_id: id.to_owned(),
            host: job.host().to_owned(),
            still_running,
            standing,
            head: Vec::new(),
            stderr_tail: Vec::new(),
            omitted_lines: 0,
            tail: Vec::new(),
            stderr_lines: Vec::new(),
            results: ResultsEntry::default(),
            dropped_lines: status.dropped_lines,
            total_lines: status.total_lines,
            page: None,
            members: job.is_fleet().then(|| FleetCounts::of(&job.members()).into()),
            groups: match job.fleet_summary() {
                Some(summary) if !still_running => Group::all(summary),
                Some(_) | None => Vec::new(),
            },
            read_omitted: None,
            first_error: None,
            hint: None,
            next: still_running.then(|| {
                format!("ssh_tail(job_id=\"{id}\", since_line_no={cursor}, wait_ms=5000)")
            }),
            clamped,
        }
    }

    fn with_page(job: &ReadableJob, page: TailReply, clamped: Vec<Clamped>) -> Self {
        let id = job.id();
        let next = page.last_line_no;
        Self {
            next: page
                .still_running
                .then(|| format!("ssh_tail(job_id=\"{id}\", since_line_no={next}, wait_ms=5000)")),
            page: Some(Box::new(page)),
            ..Self::without_output(job, &job.status(), clamped)
        }
    }

    pub(super) async fn of(
        job: &ReadableJob,
        budget: ExcerptBudget,
        clamped: Vec<Clamped>,
    ) -> Self {
        let (excerpt, status) = job.excerpt(budget).await;
        let id = job.id();
        let head_lines = excerpt.head.len() as u64;
        let shown = excerpt.head.iter().chain(&excerpt.errors).chain(&excerpt.tail);
        let on_stderr = shown.filter(|line| line.stream == Stream::Stderr);
        let stderr_lines = on_stderr.map(|line| line.line_no.value()).collect();
        // ssh_read counts from 0, so the first omitted line is at the length of the head, or later
        // if it was evicted.
        let offset = status.dropped_lines.max(head_lines);
        let behind_head = (excerpt.between + head_lines).saturating_sub(offset);
        let kept = behind_head.min(MOST_LINES.unsigned_abs());
        let mut reply = Self {
            head: displayed(job, excerpt.head),
            stderr_tail: displayed(job, excerpt.errors),
            omitted_lines: excerpt.between,
            tail: displayed(job, excerpt.tail),
            stderr_lines,
            read_omitted: (kept > 0)
                .then(|| format!("ssh_read(job_id=\"{id}\", offset={offset}, length={kept})")),
            ..Self::without_output(job, &status, clamped)
        };
        if reply.omitted_lines > 0 {
            reply.first_error = first_error(job).await;
        }
        let lines = [&reply.head[..], &reply.stderr_tail, &reply.tail].concat();
        reply.hint = hint(HintFacts {
            job_id: id,
            standing: &reply.standing,
            has_terminal: job.has_terminal(),
            total_lines: reply.total_lines,
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            lines: &lines,
            omits_lines: reply.omitted_lines > 0 && reply.first_error.is_none(),
        });
        reply
    }
}
