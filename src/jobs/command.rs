//! Builds and starts commands, on one host or on many.

use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use secrecy::SecretString;

use super::door::{Act, Door};
use super::error::Error;
use super::fleet;
use super::fleet::FleetSpec;
use super::job::Job;
use crate::job::{Become, Draft, JobSpec, check_word, quote};
use crate::jobs::reading::{Fleet, Follow};
use crate::jobs::{Outcome, Pace, Stdin, Terminal};
use crate::runner::Order;

/// A command to run as a job, built step by step.
///
/// On one host ([`Jobs::command`](super::jobs::Jobs::command)) it is started with
/// [`spawn`](Command::spawn), [`output`](Command::output), [`status`](Command::status) or
/// [`follow`](Command::follow); on many ([`Jobs::fleet`](super::jobs::Jobs::fleet)) with
/// [`spawn`](Command::<ManyHosts>::spawn), which returns a [`Fleet`].
#[must_use = "nothing is started before `spawn`"]
pub struct Command<T = OneHost> {
    door: Door,
    draft: Draft,
    fleet: Option<FleetSpec>,
    key: Option<String>,
    patience: Duration,
    target: PhantomData<T>,
}

/// Marks a [`Command`] for one host.
#[derive(Clone, Copy, Debug)]
pub enum OneHost {}

/// Marks a [`Command`] for many hosts.
#[derive(Clone, Copy, Debug)]
pub enum ManyHosts {}

/// The complete output of a command, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// All bytes of standard output.
    pub stdout: Vec<u8>,
    /// All bytes of standard error.
    pub stderr: Vec<u8>,
    /// The end of the command.
    pub outcome: Outcome,
}

/// Default time limit for a host to start a command.
const PATIENCE: Duration = Duration::from_secs(60);

impl Command<OneHost> {
    pub(super) fn on_host(door: Door, draft: Draft) -> Self {
        Self::new(door, draft, None)
    }
}

impl Command<ManyHosts> {
    pub(super) fn on_hosts(door: Door, draft: Draft, fleet: FleetSpec) -> Self {
        Self::new(door, draft, Some(fleet))
    }
}

impl<T> Command<T> {
    fn new(door: Door, draft: Draft, fleet: Option<FleetSpec>) -> Self {
        let draft = Draft {
            stdin: Stdin::Closed,
            ..draft
        };
        Self {
            door,
            draft,
            fleet,
            key: None,
            patience: PATIENCE,
            target: PhantomData,
        }
    }

    /// Appends an argument to the command line, [quoted](crate::quote): the remote shell takes it as
    /// one word, whatever it contains.
    pub fn arg(mut self, argument: impl Display) -> Self {
        self.draft.command.push(' ');
        self.draft.command.push_str(&quote(&argument.to_string()));
        self
    }

    /// Appends arguments, each as [`arg`](Self::arg) does.
    pub fn args(self, arguments: impl IntoIterator<Item = impl Display>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
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

    /// Sets the command's stdin. It is closed by default; [`Stdin::Open`] is for later
    /// [writes](Job::write).
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

    /// Runs it as another user of the host, in that user's `/bin/sh`. The working directory stays
    /// relative to the account's home directory.
    pub fn becomes(mut self, user: Become) -> Self {
        self.draft.becomes = Some(user);
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

    /// Sets an idempotency key, up to 200 characters. When the caller starts the same command with
    /// the same key again, the first start's job is returned. A different command with this key is
    /// an error.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how long a start waits for the host, by default a minute. After that it returns a job
    /// that is still starting.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn start(self) -> Result<Job, Error> {
        let Self {
            door,
            mut draft,
            fleet,
            key,
            patience,
            ..
        } = self;
        check_word("idempotency_key", key.as_deref())?;
        if let Some(fleet) = fleet {
            let plan = fleet.plan(&door).await?;
            draft.host = fleet::name(&plan);
            draft.fleet = Some(plan);
            let spec: JobSpec = draft.try_into()?;
            let members = spec.fleet.as_ref().map(|plan| plan.members.clone()).unwrap_or_default();
            let inside = door.act_on_hosts(Act::Spawn, &members).await?;
            for member in &members {
                door.check_user(member, spec.becomes.as_ref())?;
            }
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
        let spec: JobSpec = draft.try_into()?;
        let (inside, host) = door.act_on_host(Act::Spawn, &host).await?;
        door.check_user(&host.name, spec.becomes.as_ref())?;
        let spawned = inside.runner.spawn(Order::new(door.caller(), spec, key), patience).await;
        let spawned = match spawned {
            Ok(job) => Ok(job),
            Err(source) => {
                // Any host may be allowed, so a mistyped name shows only when it can't be reached.
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
        // A success removes the host's last error.
        inside.last_errors.note(&host, spawned.as_ref().err());
        spawned.map(|job| Job {
            door: door.clone(),
            job,
        })
    }
}

impl Command<OneHost> {
    /// Starts the job and returns once the host runs it.
    ///
    /// If cancelled before the command was sent, nothing is started; later, the job continues and
    /// [`list`](super::jobs::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Host`] if the host can't be
    /// used; [`Error::Spawn`] if the host can't be reached or refuses the command.
    pub async fn spawn(self) -> Result<Job, Error> {
        self.start().await
    }

    /// Runs the command to its end and returns its complete output, byte for byte, which must fit in
    /// memory. Dropping the future leaves the job running.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn). A command that fails is not an error: see
    /// [`CommandOutput::outcome`].
    pub async fn output(self) -> Result<CommandOutput, Error> {
        let mut following = self.follow().await?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let piece = following.next().await;
            stdout.extend_from_slice(&piece.stdout);
            stderr.extend_from_slice(&piece.stderr);
            if let Some(outcome) = piece.outcome {
                return Ok(CommandOutput {
                    stdout,
                    stderr,
                    outcome,
                });
            }
        }
    }

    /// Runs the command to its end and returns how it ended. Dropping the future leaves the job
    /// running.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn). A command that fails is not an error.
    pub async fn status(self) -> Result<Outcome, Error> {
        Ok(self.spawn().await?.wait().await)
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

impl Command<ManyHosts> {
    /// Starts the fleet and returns it; its members start as the [`FleetSpec`] says.
    ///
    /// If cancelled before the fleet is registered, nothing is started; later, the fleet continues
    /// and [`list`](super::jobs::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Host`] if a host can't be
    /// used, or a pattern matches none.
    pub async fn spawn(self) -> Result<Fleet, Error> {
        Ok(Fleet::new(self.start().await?))
    }

    /// The same command in the type of a command for one host, for callers that start either kind
    /// as a [`Job`].
    #[doc(hidden)]
    pub fn as_job(self) -> Command {
        Command {
            door: self.door,
            draft: self.draft,
            fleet: self.fleet,
            key: self.key,
            patience: self.patience,
            target: PhantomData,
        }
    }
}
