//! Builds and starts commands.

use std::time::Duration;

use secrecy::SecretString;

use super::door::{Act, Door};
use super::error::Error;
use super::fleet;
use super::fleet::FleetSpec;
use super::job::Job;
use crate::job::{Draft, JobSpec, check_word};
use crate::jobs::reading::Follow;
use crate::jobs::{Pace, Stdin, Terminal};
use crate::runner::Order;

/// A command to run as a job, built step by step and started with [`spawn`](Self::spawn).
#[must_use = "nothing is started before `spawn`"]
pub struct Command {
    door: Door,
    draft: Draft,
    fleet: Option<FleetSpec>,
    key: Option<String>,
    patience: Duration,
}

/// Default time limit for a host to start a command.
const PATIENCE: Duration = Duration::from_secs(60);

impl Command {
    pub(super) fn new(door: Door, host: String, command: String) -> Self {
        Self {
            door,
            draft: Draft::new(host, command),
            fleet: None,
            key: None,
            patience: PATIENCE,
        }
    }

    /// Runs it on many hosts: each gets a job of its own, and one fleet represents them all. Its
    /// log has their lines, each after its host's name.
    pub(super) fn on(mut self, fleet: FleetSpec) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Sets the working directory, relative to the home directory; `~` is accepted. If it does not
    /// exist, the job exits with 125.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.draft.cwd = Some(directory.into());
        self
    }

    /// Sets a variable. Its value is sent on stdin and appears in no process list.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.draft.env.insert(name.into(), value.into());
        self
    }

    /// Sets the command's stdin. [`Stdin::Open`], for later writes, is the default.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.draft.stdin = stdin;
        self
    }

    /// Ends the whole process tree after this time; a millisecond to a year.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.draft.timeout = Some(limit);
        self
    }

    /// Runs it on a pseudo-terminal. All output is then stdout.
    pub fn terminal(mut self, terminal: Terminal) -> Self {
        self.draft.terminal = Some(terminal);
        self
    }

    /// Lets the job outlive this process: a supervisor on its host keeps it and its output,
    /// whatever happens to the connection and this process, and following resumes automatically.
    /// The host needs a POSIX shell and a writable home.
    pub fn durable(mut self, durable: bool) -> Self {
        self.draft.durable = durable;
        self
    }

    /// Sets a label to find the job by, up to 200 characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.draft.label = Some(label.into());
        self
    }

    /// Sets an idempotency key, up to 200 characters. A second command of the caller with the same
    /// key returns the first one's job.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how long [`spawn`](Self::spawn) waits for the host, by default a minute. After that it
    /// returns a job that is still starting.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts the job and returns once the host runs it.
    ///
    /// If cancelled before the command was sent, nothing is started; later, the job continues and
    /// [`list`](super::jobs::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Host`] if the host can't be
    /// used; [`Error::Spawn`] if the host can't be reached or refuses the command.
    pub async fn spawn(self) -> Result<Job, Error> {
        let Self {
            door,
            mut draft,
            fleet,
            key,
            patience,
        } = self;
        check_word("idempotency_key", key.as_deref())?;
        if let Some(fleet) = fleet {
            let plan = fleet.plan(&door).await?;
            draft.host = fleet::name(&plan);
            draft.fleet = Some(plan);
            let spec: JobSpec = draft.try_into()?;
            let members = spec.fleet.as_ref().map(|plan| plan.members.clone()).unwrap_or_default();
            let inside = door.act_on_hosts(Act::Spawn, &members).await?;
            let job = inside
                .runner
                .spawn(Order::new(door.caller(), spec.clone(), key), patience)
                .await;
            return job
                .map(|job| Job {
                    door: door.clone(),
                    job,
                })
                .map_err(|source| Error::Spawn {
                    host: spec.host.clone(),
                    nearest: None,
                    source,
                });
        }
        let host = draft.host.clone();
        let spec = draft.try_into()?;
        let (inside, host) = door.act_on_host(Act::Spawn, &host).await?;
        let spawned = inside.runner.spawn(Order::new(door.caller(), spec, key), patience).await;
        let spawned = match spawned {
            Ok(job) => Ok(job),
            Err(source) => {
                let nearest = if source.is_unreachable() {
                    door.nearest_unlisted(&host.name).await
                } else {
                    None
                };
                Err(Error::Spawn {
                    host: host.name.clone(),
                    nearest,
                    source,
                })
            }
        };
        inside.last_errors.note(&host, spawned.as_ref().err());
        spawned.map(|job| Job {
            door: door.clone(),
            job,
        })
    }

    /// Starts the job for one follower. The far end is held back while the follower is behind, as
    /// by a pipe, so that nothing is lost. The job has a connection of its own. Dropping the
    /// [`Follow`] stops holding the job back.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn follow(mut self) -> Result<Follow, Error> {
        // The files on the host keep output that the follower has not read yet.
        let has_own_connection = !self.draft.durable && self.fleet.is_none();
        self.draft.pace = if has_own_connection {
            Pace::OfFollower
        } else {
            Pace::Free
        };
        Ok(self.spawn().await?.follow())
    }
}
