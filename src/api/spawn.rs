use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Code, Ending, Error, JobState, Service};
use crate::job::{Job, JobSpec, StdinPlan};

/// Start a command on a host.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnRequest {
    /// Host name; ssh_hosts lists them.
    pub host: String,
    /// Command line, run by the login shell as `ssh HOST COMMAND` would.
    pub command: String,
    /// Directory to run it in; default the home directory, where `~/` leads too. Exit status 125 when there is none.
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// Environment variables to set. Values never appear in the host's process list.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<String, SecretString>,
    /// Text to send to stdin, followed by its end. Without it stdin stays open.
    #[serde(default)]
    #[schemars(with = "String")]
    pub stdin: Option<SecretString>,
    /// A word to find the job by in ssh_jobs.
    #[serde(default)]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// End the whole process tree after this many seconds.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = 31_536_000))]
    pub timeout_s: Option<u64>,
    /// A repeated call with the same key returns the first call's job and starts nothing.
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
    /// running, or already a final state when the command was quick.
    pub state: JobState,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_at: u64,
}

const LONGEST_TIMEOUT: u64 = 31_536_000;

impl SpawnRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            command: command.into(),
            cwd: None,
            env: BTreeMap::new(),
            stdin: None,
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
        if self.timeout_s.is_some_and(|seconds| !(1..=LONGEST_TIMEOUT).contains(&seconds)) {
            return Err(Error::new(
                Code::InvalidArgument,
                "timeout_s is out of range",
                "use 1 to 31536000 seconds, or leave it away",
            ));
        }
        let spec = JobSpec {
            host: self.host,
            command: self.command,
            cwd: self.cwd,
            env: self.env,
            label: self.label,
            stdin: self.stdin.map_or(without_stdin, StdinPlan::Text),
            timeout: self.timeout_s.map(Duration::from_secs),
        };
        Ok((spec, self.idempotency_key))
    }
}

impl Service {
    /// Starts a job and returns once the host runs it. Stdin stays open unless the request brings its text.
    ///
    /// Cancelled early, nothing is started; later, the job goes on and [`jobs`](Self::jobs) lists it.
    pub async fn spawn(&self, request: SpawnRequest) -> Result<SpawnReply, Error> {
        let job = self.start(request, StdinPlan::Open).await?;
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
        request: SpawnRequest,
        without_stdin: StdinPlan,
    ) -> Result<Arc<Job>, Error> {
        let (spec, key) = request.into_spec(without_stdin)?;
        let host = spec.host.clone();
        self.hosts.check(&host)?;
        let started = self.runner.spawn(spec, key).await.map_err(Error::from);
        self.hosts.note_error(&host, started.as_ref().err());
        started
    }
}
