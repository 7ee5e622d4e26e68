//! The handle of a job. Dropping it, or any of its futures, never ends the job.

use std::fmt;
use std::time::{Duration, SystemTime};

use regex::Regex;
use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{
    FollowedBytes, Line, LineNo, Lines, Outcome, PageQuery, Phase, Signal, SignalReport, Stream,
    Summary, TerminalSize, Verb, Wait,
};

use crate::error::Error;
use crate::stdio::{OutputPipe, StdinPipe};

/// A job: one run of one command. A cheap handle; dropping it ends nothing.
#[derive(Clone)]
pub struct Job {
    core: core_jobs::Job,
}

/// A job in a list; see [`Jobs::list`](crate::Jobs::list).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListedJob {
    /// The job's id.
    pub id: String,
    /// Its host. For a fleet, the folded names of its hosts.
    pub host: String,
    /// The command line.
    pub command: String,
    /// Its label.
    pub label: Option<String>,
    /// Its state.
    pub phase: Phase,
    /// When it was started.
    pub started_at: SystemTime,
}

/// What to read with [`Job::tail`], and how long to wait for it. The default reads from the first line
/// on, at most 500 lines, without waiting.
#[derive(Clone, Debug)]
pub struct TailOptions {
    /// The last line that the reader has seen.
    pub after: LineNo,
    /// Maximum number of lines.
    pub max_lines: usize,
    /// Longest wait for news, if there are none yet.
    pub wait: Duration,
    /// Waits for a line that matches, and not for any new line. The end of an unfinished line counts. Has no
    /// effect if `wait` is zero.
    pub until: Option<Regex>,
}

/// Lines after a cursor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tail {
    /// The lines, by number.
    pub lines: Vec<Line>,
    /// Number of lines that were evicted before they were read.
    pub dropped_lines: u64,
    /// The cursor for the next read.
    pub cursor: LineNo,
    /// How the job ended. `None` if it runs, or has lines after these.
    pub outcome: Option<Outcome>,
}

/// Follows a job's output byte by byte, both streams together and with unfinished lines.
pub struct Follow {
    core: core_jobs::Follow,
}

/// Time limit for closing stdin.
const CLOSING: Duration = Duration::from_secs(10);

impl Job {
    pub(crate) fn new(core: core_jobs::Job) -> Self {
        Self { core }
    }

    /// The job's id: short, starts with its host's name, can't be guessed.
    pub fn id(&self) -> &str {
        self.core.id()
    }

    /// The host, as it was named.
    pub fn host(&self) -> &str {
        self.core.host()
    }

    /// The command line.
    pub fn command(&self) -> &str {
        self.core.command()
    }

    /// Its state.
    pub fn phase(&self) -> Phase {
        self.core.status().phase
    }

    /// How it ended. `None` if it has not.
    pub fn outcome(&self) -> Option<Outcome> {
        outcome_of(self.phase())
    }

    /// Waits for the end of the job and returns how it ended. Cancel safe: the job continues.
    pub async fn wait(&self) -> Outcome {
        self.core.wait().await
    }

    /// Waits for the end of the job, at most for `limit`. `None` if it still runs. Cancel safe.
    pub async fn wait_within(&self, limit: Duration) -> Option<Outcome> {
        self.core.wait_within(limit).await;
        self.outcome()
    }

    /// Its lines as they arrive, from the first one on, until the job ends.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) by the policy.
    pub async fn lines(&self) -> Result<Lines, Error> {
        self.lines_after(LineNo::START).await
    }

    /// Its lines after a cursor, as they arrive, until the job ends.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn lines_after(&self, cursor: LineNo) -> Result<Lines, Error> {
        Ok(self.core.lines_after(cursor).await?)
    }

    /// Reads the lines after a cursor. Waits for news if there are none.
    ///
    /// Reading changes nothing: the same call returns the same answer until lines are evicted.
    /// Cancelling ends the wait.
    ///
    /// # Errors
    /// [`SlowPattern`](crate::ErrorKind::SlowPattern), and as [`lines`](Self::lines).
    pub async fn tail(&self, options: &TailOptions) -> Result<Tail, Error> {
        let query = PageQuery {
            max_lines: options.max_lines.max(1),
            ..PageQuery::after(options.after)
        };
        let wait = Wait {
            patience: options.wait,
            until: options.until.clone(),
            ..Wait::default()
        };
        let tail = self.core.tail(&query, &wait).await?;
        let outcome = if tail.still_running() {
            None
        } else {
            outcome_of(tail.status.phase)
        };
        Ok(Tail {
            lines: tail.page.lines,
            dropped_lines: tail.page.dropped_lines,
            cursor: tail.page.last_line_no,
            outcome,
        })
    }

    /// Its standard output as bytes, from the first one on, until the job ends.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn stdout(&self) -> Result<OutputPipe, Error> {
        self.stream(Stream::Stdout).await
    }

    /// Its standard error as bytes, from the first one on, until the job ends.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn stderr(&self) -> Result<OutputPipe, Error> {
        self.stream(Stream::Stderr).await
    }

    async fn stream(&self, stream: Stream) -> Result<OutputPipe, Error> {
        Ok(OutputPipe::new(
            self.core.readable(Verb::Tail).await?,
            stream,
        ))
    }

    /// Both streams as bytes, from the first one on. Unlike [`Host::follow`](crate::Host::follow), it
    /// does not hold the job back.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn follow(&self) -> Result<Follow, Error> {
        Ok(Follow::new(self.core.follow().await?))
    }

    /// Its standard input, if it was started with [`Stdin::Open`](crate::Stdin::Open).
    pub fn stdin(&self) -> StdinPipe {
        StdinPipe::new(self.core.clone())
    }

    /// Closes its standard input: the command reads the end of the file.
    ///
    /// # Errors
    /// [`Stdin`](crate::ErrorKind::Stdin).
    pub async fn close_stdin(&self) -> Result<(), Error> {
        Ok(self.core.close_stdin(CLOSING).await?)
    }

    /// Sets the size of its terminal, in columns and rows.
    ///
    /// # Errors
    /// [`Stdin`](crate::ErrorKind::Stdin) if it has no terminal, or does not run.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        Ok(self.core.resize(size).await?)
    }

    /// Sends a signal to every process of the job. With `grace`, processes that are still alive after
    /// it get KILL. Cancelling may leave the signal sent.
    ///
    /// # Errors
    /// [`Signal`](crate::ErrorKind::Signal) if no process is left to signal, or the host can't be
    /// reached.
    pub async fn signal(
        &self,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, Error> {
        Ok(self.core.signal(signal, grace).await?)
    }

    /// Kills the job, if it still runs, and waits for its end, at most five seconds.
    ///
    /// # Errors
    /// [`Signal`](crate::ErrorKind::Signal) if the host can't be reached,
    /// [`StillRunning`](crate::ErrorKind::StillRunning) if it has not ended in time.
    pub async fn kill(&self) -> Result<(), Error> {
        Ok(self.core.kill().await?)
    }

    /// Deletes a finished job and its output, or cancels a queued one and deletes it.
    ///
    /// # Errors
    /// [`StillRunning`](crate::ErrorKind::StillRunning).
    pub async fn forget(&self) -> Result<(), Error> {
        self.core.forget().await?;
        Ok(())
    }
}

fn outcome_of(phase: Phase) -> Option<Outcome> {
    match phase {
        Phase::Ended(outcome) => Some(outcome),
        Phase::Queued | Phase::Starting | Phase::Running => None,
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.id()).finish()
    }
}

impl Follow {
    pub(crate) fn new(core: core_jobs::Follow) -> Self {
        Self { core }
    }

    /// The job.
    pub fn job(&self) -> Job {
        Job::new(self.core.job().clone())
    }

    /// Waits for the next bytes, or the end of the job. Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> FollowedBytes {
        self.core.next().await
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Follow").field(&self.core.job().id()).finish()
    }
}

impl ListedJob {
    pub(crate) fn of(summary: Summary) -> Self {
        Self {
            id: summary.id.as_str().to_owned(),
            host: summary.facts.host,
            command: summary.facts.command,
            label: summary.facts.label,
            started_at: summary.status.started_at,
            phase: summary.status.phase,
        }
    }
}

impl Default for TailOptions {
    fn default() -> Self {
        Self {
            after: LineNo::START,
            max_lines: 500,
            wait: Duration::ZERO,
            until: None,
        }
    }
}
