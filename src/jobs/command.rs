use std::time::Duration;

use secrecy::SecretString;

use super::door::{Act, Door};
use super::{Error, FleetSpec, Follow, Job, Pace, Stdin, Terminal, fleet};
use crate::job::{Draft, JobSpec, check_word};
use crate::runner::Order;

/// A command to be run as a job, built step by step and started with [`spawn`](Self::spawn).
#[must_use = "nothing is started before `spawn`"]
pub struct Command {
    door: Door,
    draft: Draft,
    fleet: Option<FleetSpec>,
    key: Option<String>,
    patience: Duration,
}

/// Time limit for a host to start a command, unless the caller says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

impl Command {
    pub(super) fn new(door: Door, host: String, command: String) -> Self {
        Self { door, draft: Draft::new(host, command), fleet: None, key: None, patience: PATIENCE }
    }

    /// Runs it on many hosts: a job for each, and this one for all, whose lines are theirs, each behind its host's name.
    pub(super) fn on(mut self, fleet: FleetSpec) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Runs it in this directory; relative to the home directory, where `~` leads too. When there is none, the job exits with 125.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.draft.cwd = Some(directory.into());
        self
    }

    /// Sets a variable. Its value travels on stdin and appears in no process list.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.draft.env.insert(name.into(), value.into());
        self
    }

    /// What the command reads. [`Stdin::Open`], for later writes, is the default.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.draft.stdin = stdin;
        self
    }

    /// Ends the whole process tree after this long; a millisecond to a year.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.draft.timeout = Some(limit);
        self
    }

    /// Runs it on a pseudo-terminal; all output is then stdout.
    pub fn terminal(mut self, terminal: Terminal) -> Self {
        self.draft.terminal = Some(terminal);
        self
    }

    /// Lets the job go on without us: a supervisor on its host keeps it and its output, whatever becomes of the connection and of
    /// this process, and following it goes on by itself. The host needs a POSIX shell and a writable home.
    pub fn durable(mut self, durable: bool) -> Self {
        self.draft.durable = durable;
        self
    }

    /// A word to find the job by, up to 200 characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.draft.label = Some(label.into());
        self
    }

    /// A second command of the same caller's with the same key, up to 200 characters, is the first one's job.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Time for which [`spawn`](Self::spawn) waits for the host, by default a minute. Then it returns a job that is still starting.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts the job and returns once the host runs it.
    ///
    /// Cancelled before the command was sent, nothing is started; later, the job goes on and
    /// [`list`](super::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] when it can't be, whatever the host is; [`Error::Host`] when the host can't be named; [`Error::Spawn`] when
    /// the host can't be reached or does not run it.
    pub async fn spawn(self) -> Result<Job, Error> {
        let Self { door, mut draft, fleet, key, patience } = self;
        check_word("idempotency_key", key.as_deref())?;
        if let Some(fleet) = fleet {
            let plan = fleet.plan(&door).await?;
            draft.host = fleet::name(&plan);
            draft.fleet = Some(plan);
            let spec: JobSpec = draft.try_into()?;
            let members = spec.fleet.as_ref().map(|plan| plan.members.clone()).unwrap_or_default();
            let inside = door.act_on_hosts(Act::Spawn, &members).await?;
            let failed = |source| Error::Spawn { host: spec.host.clone(), nearest: None, source };
            let job = inside.runner.spawn(Order::new(door.caller(), spec.clone(), key), patience).await;
            return job.map(|job| Job { door: door.clone(), job }).map_err(failed);
        }
        let host = draft.host.clone();
        let spec = draft.try_into()?;
        let (inside, host) = door.act_on_host(Act::Spawn, &host).await?;
        let spawned = inside.runner.spawn(Order::new(door.caller(), spec, key), patience).await;
        let spawned = match spawned {
            Ok(job) => Ok(job),
            Err(source) => {
                let nearest = if source.is_unreachable() {
                    inside.hosts.book().nearest(&host.name).await
                } else {
                    None
                };
                Err(Error::Spawn { host: host.name.clone(), nearest, source })
            }
        };
        inside.last_errors.note(&host, spawned.as_ref().err());
        spawned.map(|job| Job { door: door.clone(), job })
    }

    /// Starts the job for one follower. The far end is held back while the follower is behind, as by a pipe, so that nothing is
    /// lost; the job has a connection to itself. Dropping the [`Follow`] lets the job run on freely.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn follow(mut self) -> Result<Follow, Error> {
        // The host's files hold what a follower has not read yet.
        let has_own_connection = !self.draft.durable && self.fleet.is_none();
        self.draft.pace = if has_own_connection { Pace::OfFollower } else { Pace::Free };
        Ok(self.spawn().await?.follow())
    }
}
