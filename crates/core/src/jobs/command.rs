//! Builds and starts commands, on one host or on many.

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use secrecy::SecretString;
use tokio::time::{Instant, sleep};

use super::door::Door;
use super::error::Error;
use super::fleet;
use super::fleet::FleetSpec;
use super::job::Job;
use crate::admission::{LOOK_AGAIN, RepeatedStart, StartAnswer, StartCall};
use crate::hosts::HostRef;
use crate::jobs::reading::{Fleet, Follow};
use crate::jobs::{Outcome, Pace, Stdin, Terminal};
use crate::runner::{SpawnError, StartOrder};
use sshjobs_job::notify::Receiver;
use sshjobs_job::{
    self, Become, BecomeMethod, Draft, JobId, JobSpec, SpecError, TemplateCall, check_key,
    check_word, quote,
};
use sshjobs_policy::Verb;

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
    reason: Option<String>,
    patience: Duration,
    /// The verb that the policy decides on.
    verb: Verb,
    // A function, so that the command is `Send` whatever it is for.
    target: PhantomData<fn() -> T>,
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
            reason: None,
            patience: PATIENCE,
            verb: Verb::Spawn,
            target: PhantomData,
        }
    }

    /// Appends an argument to the command line, [quoted](sshjobs_job::quote): the remote shell takes it as
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

    /// Sets a variable to a secret of the configuration, by the secret's name. Its value appears in
    /// no process list, and the job's output shows `[secret NAME]` in its place.
    pub fn secret_env(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.draft.secrets.env.insert(name.into(), secret.into());
        self
    }

    /// Sets the command's stdin to a secret of the configuration, by the secret's name, followed by
    /// the end of input. The job's output shows `[secret NAME]` in its place.
    pub fn secret_stdin(mut self, secret: impl Into<String>) -> Self {
        self.draft.secrets.stdin = Some(secret.into());
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

    /// Notifies a receiver when the job ends. A URL or a command must come from a person on this machine.
    #[doc(hidden)]
    pub fn notify(mut self, receiver: Receiver) -> Self {
        self.draft.notify.push(receiver);
        self
    }

    /// Starts it only after another job has ended, whatever its outcome. Until then it is
    /// [`Phase::Queued`](crate::jobs::Phase). The caller must see that job.
    pub fn after(mut self, job: &str) -> Self {
        self.draft.turn.after.push(JobId::from(job));
        self
    }

    /// Starts it only after another job has succeeded. If that job fails, this one is not started.
    pub fn after_success(mut self, job: &str) -> Self {
        self.draft.turn.after_ok.push(JobId::from(job));
        self
    }

    /// Starts it in a queue of the configuration, which runs one job at a time by default.
    /// Queues need stored jobs, and are shared by all processes with the same store.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.draft.turn.queue = Some(name.into());
        self
    }

    /// Sets an idempotency key, up to 200 characters. When the caller starts the same command with
    /// the same key again, the first start's job is returned. A different command with this key is
    /// an error.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets why the command is needed, up to 200 characters, for approvers: a rule of the policy may ask
    /// them. The start then waits 20 seconds for an answer, and fails with [`Error::Refused`] if there is
    /// none. The same start succeeds, once, after they have agreed.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets how long a start waits for the host, by default a minute. After that it returns a job
    /// that is still starting.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the command from a template of the policy, instead of a text of the caller's. Its
    /// parameters are quoted for the login shell of the host.
    pub fn template(mut self, template: TemplateCall) -> Self {
        self.draft.template = Some(template);
        self
    }

    /// Marks a command whose caller waits for its end: the policy may allow `run` and not `spawn`, or
    /// the other way round.
    #[doc(hidden)]
    pub fn as_run(mut self) -> Self {
        self.verb = Verb::Run;
        self
    }

    async fn start(mut self) -> Result<Job, Error> {
        check_key(self.key.as_deref())?;
        check_word("reason", self.reason.as_deref())?;
        let turn = &self.draft.turn;
        for earlier in turn.after.iter().chain(&turn.after_ok) {
            self.door.find(earlier).await?;
        }
        let mut shows_output = false;
        if let Some(fleet) = self.fleet.take() {
            // A fleet is spawned, also by a caller who waits for it.
            shows_output = self.verb == Verb::Run;
            self.verb = Verb::Spawn;
            let plan = fleet.plan(&self.door).await?;
            self.draft.host = fleet::name(&plan);
            self.draft.fleet = Some(plan);
        }
        // Boxed, because the futures of a start are too deep for the compiler.
        self.admit_and_spawn(shows_output).boxed().await
    }

    /// Starts the job, on one host or on many. A caller to whom it `shows_output` as well needs the verb
    /// run on each.
    async fn admit_and_spawn(mut self, shows_output: bool) -> Result<Job, Error> {
        let door = self.door.clone();
        let hosts = self.hosts();
        door.admission.find_hosts(self.verb, &hosts).await?;
        door.check_secrets(self.verb, &self.draft, &hosts).await?;
        self.fill_template().await?;

        // Checked before the policy is asked, so that a mistake is reported as one.
        let spec: JobSpec = self.draft.clone().try_into()?;
        let id = sshjobs_job::Job::new_id(&spec);
        let start = StartCall {
            verb: self.verb,
            spec: &spec,
            id: &id,
            idempotency_key: self.key.as_deref(),
            reason: self.reason.as_deref(),
            shows_output,
        };
        let permit = loop {
            let repeated = match door.admission.admit_start(&start).await? {
                StartAnswer::Permitted(permit) => break permit,
                StartAnswer::Repeats(repeated) => repeated,
            };
            if let Some(job) = self.find_earlier(&repeated).await? {
                return Ok(job);
            }
            door.admission.note_no_job(&start, &repeated.earlier).await?;
        };

        let with_secrets = self.with_secrets(permit.timeout()).await;
        let spec = match with_secrets {
            Ok(spec) => spec,
            Err(error) => {
                permit.fail(&error.to_string(), true).await;
                return Err(error);
            }
        };
        let is_approved = permit.is_approved();
        let reading = permit.reading();
        let order = StartOrder::new(door.caller(), spec, self.key.take());
        let spawned = door.runner().spawn(permit, order, self.patience).await;
        let job = match spawned {
            Ok(job) => Ok(job),
            Err(source) => Err(self.spawn_error(source).await),
        };
        if let [host] = hosts.as_slice()
            && self.draft.fleet.is_none()
        {
            let host = HostRef {
                caller: door.caller().clone(),
                name: host.clone(),
            };
            // A success removes the host's last error.
            door.note_connection(&host, job.as_ref().err());
        }
        let job = job?;
        Ok(Job {
            is_approved,
            // A key may have led to an earlier job.
            reading: reading.filter(|permit| permit.job() == job.id()).map(Arc::new),
            ..Job::new(door, job)
        })
    }

    /// The hosts on which it starts.
    fn hosts(&self) -> Vec<String> {
        match &self.draft.fleet {
            Some(plan) => plan.members.clone(),
            None => vec![self.draft.host.clone()],
        }
    }

    async fn spawn_error(&self, source: SpawnError) -> Error {
        let host = self.draft.host.clone();
        // Any host may be allowed, so a mistyped name shows only when it can't be reached.
        let nearest = if source.is_unreachable() && self.draft.fleet.is_none() {
            self.door.admission.nearest_unlisted(&host).await
        } else {
            None
        };
        Error::Spawn {
            host,
            nearest,
            source,
        }
    }

    /// The specification with the values of its secrets, once the start is allowed.
    async fn with_secrets(&self, timeout: Option<Duration>) -> Result<JobSpec, Error> {
        let mut draft = Draft {
            timeout,
            ..self.draft.clone()
        };
        self.door.fill_secrets(&mut draft).await?;
        Ok(draft.try_into()?)
    }

    /// The job of the start that this one repeats. `None` if it has none.
    async fn find_earlier(&self, repeated: &RepeatedStart) -> Result<Option<Job>, Error> {
        let spec = self.with_secrets(repeated.timeout).await?;
        let give_up_at = Instant::now() + self.door.context().approval_wait;
        let job = loop {
            let order = StartOrder {
                id: repeated.earlier.job.clone(),
                ..StartOrder::new(self.door.caller(), spec.clone(), self.key.clone())
            };
            let found = self.door.runner().find_started(order, self.patience).await;
            let found = found.map_err(|source| Error::Spawn {
                host: spec.host.clone(),
                nearest: None,
                source,
            })?;
            // The earlier call may be under way, perhaps in another process, and not have come to its start.
            if found.is_some() || Instant::now() >= give_up_at {
                break found;
            }
            sleep(LOOK_AGAIN).await;
        };
        Ok(job.map(|job| Job {
            is_approved: true,
            ..Job::new(self.door.clone(), job)
        }))
    }

    /// Replaces a template by its command, with the settings that the template has.
    async fn fill_template(&mut self) -> Result<(), Error> {
        let Some(wanted) = self.draft.template.clone() else { return Ok(()) };
        let members = self
            .draft
            .fleet
            .as_ref()
            .map(|plan| plan.members.as_slice())
            .unwrap_or_default();
        // Each member is asked about later.
        let host = members.first().unwrap_or(&self.draft.host);
        let admission = &self.door.admission;
        let (template, values) = admission.template(self.verb, host, &wanted).await?;
        admission.check_options(self.verb, &self.draft, &template).await?;
        self.draft.command = template.command_with(&values);
        if !template.allows_stdin && self.draft.terminal.is_none() {
            self.draft.stdin = Stdin::Closed;
        }
        if let Some(user) = template.becomes {
            self.draft.becomes =
                Some(Become::new(user, BecomeMethod::default()).map_err(SpecError::from)?);
        }
        self.draft.cwd = template.cwd;
        // A call may only shorten it.
        self.draft.timeout = self.draft.timeout.into_iter().chain(template.timeout).min();
        self.draft.template = Some(TemplateCall {
            params: values,
            ..wanted
        });
        Ok(())
    }
}

impl Command<OneHost> {
    /// Starts the job and returns once the host runs it.
    ///
    /// If cancelled before the command was sent, nothing is started; later, the job continues and
    /// [`list`](super::jobs::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Refused`] if the host can't be
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
        // The follower gets the output, so the policy decides on the verb run, before anything starts.
        self.verb = Verb::Run;
        let job = self.spawn().await?;
        match job.readable(Verb::Run).await {
            Ok(readable) => Ok(readable.follow()),
            Err(error) => {
                // Otherwise it would wait for its follower for ever.
                job.job.stop_pacing();
                Err(error)
            }
        }
    }
}

impl Command<ManyHosts> {
    /// Starts the fleet and returns it; its members start as the [`FleetSpec`] says.
    ///
    /// If cancelled before the fleet is registered, nothing is started; later, the fleet continues
    /// and [`list`](super::jobs::Jobs::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Refused`] if a host can't be
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
            reason: self.reason,
            patience: self.patience,
            verb: self.verb,
            target: PhantomData,
        }
    }
}
