use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Code, Ending, Error, JobState, Service};
use crate::job::{Job, JobSpec, Pace, StdinPlan, Terminal};

/// Start a command on a host.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnRequest {
    /// Host name from ssh_hosts.
    pub host: String,
    /// Shell command line.
    pub command: String,
    /// Working directory; default home. Exit status 125 when missing.
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// Variables to set; kept out of the process list.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<String, SecretString>,
    /// Text for stdin, then its end. Without it stdin stays open.
    #[serde(default)]
    #[schemars(with = "String")]
    pub stdin: Option<SecretString>,
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
}

/// A job that was started.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SpawnReply {
    /// The handle for ssh_tail and the other tools.
    pub job_id: String,
    /// The host it runs on.
    pub host: String,
    /// running, starting when the host takes its time, or already a final state when the command was quick.
    pub state: JobState,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_at: u64,
}

const LONGEST_WORD: usize = 200;
const SHORTEST_TIMEOUT: f64 = 0.001;
const LONGEST_TIMEOUT: f64 = 31_536_000.0;

impl SpawnRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            command: command.into(),
            cwd: None,
            env: BTreeMap::new(),
            stdin: None,
            pty: false,
            cols: None,
            rows: None,
            term: None,
            label: None,
            timeout_s: None,
            idempotency_key: None,
        }
    }

    pub(super) fn into_spec(self, without_stdin: StdinPlan) -> Result<(JobSpec, Option<String>), Error> {
        if self.command.trim().is_empty() {
            return Err(Error::new(
                Code::InvalidArgument,
                "command is empty",
                "give the command line to run",
            ));
        }
        if let Some(seconds) =
            self.timeout_s.filter(|seconds| !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(seconds))
        {
            let message = format!("a time limit of {seconds} s is out of range");
            return Err(Error::new(
                Code::InvalidArgument,
                message,
                "use 0.001 to 31536000 seconds (a year), or none",
            ));
        }
        for (name, word) in [("label", &self.label), ("idempotency_key", &self.idempotency_key)] {
            if word.as_ref().is_some_and(|word| word.chars().count() > LONGEST_WORD) {
                let message = format!("{name} is longer than {LONGEST_WORD} characters");
                return Err(Error::new(Code::InvalidArgument, message, "use a shorter one"));
            }
        }
        let terminal = self.terminal()?;
        let spec = JobSpec {
            host: self.host,
            command: self.command,
            cwd: self.cwd,
            env: self.env,
            label: self.label,
            stdin: self.stdin.map_or(without_stdin, StdinPlan::Text),
            timeout: self.timeout_s.map(Duration::from_secs_f64),
            terminal,
            pace: Pace::Free,
        };
        Ok((spec, self.idempotency_key))
    }

    fn terminal(&self) -> Result<Option<Terminal>, Error> {
        let bad = |message: &str, hint| Err(Error::new(Code::InvalidArgument, message, hint));
        if !self.pty {
            return match (self.cols, self.rows, &self.term) {
                (None, None, None) => Ok(None),
                _ => bad("cols, rows and term are a terminal's, and there is none", "set pty=true"),
            };
        }
        let term = self.term.clone().unwrap_or_else(|| "xterm-256color".to_owned());
        if term.is_empty() || !term.chars().all(|c| c.is_ascii_graphic()) || term.len() > 64 {
            return bad("term is no kind of terminal", "use a name such as xterm-256color or dumb");
        }
        let (cols, rows) = terminal_size(self.cols.unwrap_or(80), self.rows.unwrap_or(24))?;
        Ok(Some(Terminal { term, cols, rows }))
    }
}

/// A terminal's size in columns and rows.
pub(super) fn terminal_size(cols: i64, rows: i64) -> Result<(u32, u32), Error> {
    let size = |number: i64| u32::try_from(number).ok().filter(|number| (1..=1000).contains(number));
    size(cols).zip(size(rows)).ok_or_else(|| {
        let message = format!("{cols} columns and {rows} rows are no size of a terminal");
        Error::new(Code::InvalidArgument, message, "use 1 to 1000 for each")
    })
}

impl Service {
    /// Starts a job and returns once the host runs it. Stdin stays open unless the request brings its text.
    ///
    /// Cancelled early, nothing is started; later, the job goes on and [`jobs`](Self::jobs) lists it. A host that takes longer than
    /// `max_wait_ms` leaves the job `starting`.
    pub async fn spawn(&self, request: SpawnRequest) -> Result<SpawnReply, Error> {
        let patience = Duration::from_millis(self.limits().max_wait_ms);
        let job = self.start(request.into_spec(StdinPlan::Open)?, patience).await?;
        let status = job.status();
        Ok(SpawnReply {
            job_id: job.id.to_string(),
            host: job.spec.host.clone(),
            state: Ending::of(&status.phase).state,
            started_at: status.started_at,
        })
    }

    pub(super) async fn start(
        &self,
        (spec, key): (JobSpec, Option<String>),
        patience: Duration,
    ) -> Result<Arc<Job>, Error> {
        let host = spec.host.clone();
        self.hosts.check(&host).await?;
        let started = self.runner.spawn(spec, key, patience).await;
        let mut started = started.map_err(|error| Error::from(error).about(&host));
        if let Err(error) = &mut started
            && error.code == Code::Unreachable
            && let Some(known) = self.hosts.nearest(&host).await
        {
            error.hint = format!("did you mean {known:?}? Else {}", error.hint);
        }
        self.hosts.note_error(&host, started.as_ref().err());
        started
    }
}
