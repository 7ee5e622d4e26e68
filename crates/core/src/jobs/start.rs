//! Starts commands, on one host or on many.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::command::Command;
use super::door::Door;
use super::error::Error;
use super::fleet;
use super::fleet::FleetSpec;
use super::job::Job;
use super::jobs::Jobs;
use super::look::Look;
use crate::admission::{CallPlace, HostAct, LOOK_AGAIN, RepeatedStart, StartAnswer, StartCall};
use crate::hosts::HostRef;
use crate::jobs::reading::Follow;
use crate::jobs::{Pace, Stdin};
use crate::runner::{SpawnError, StartOrder};
use sshjobs_job::{
    self, Become, BecomeMethod, JobSpec, SpecError, TemplateCall, check_key, check_word,
};
use sshjobs_policy::Verb;

/// Where a command is started.
#[derive(Clone, Debug)]
pub enum StartTarget {
    /// On one host.
    Host(String),
    /// On many, as one fleet.
    Fleet(FleetSpec),
}

/// A start under way.
struct Start {
    door: Door,
    command: Command,
    /// The verb that the policy decides on.
    verb: Verb,
}

impl Jobs {
    /// Starts a command and returns once its host runs it. The members of a fleet start as its
    /// [`FleetSpec`] says.
    ///
    /// If cancelled before the command was sent, nothing is started; later, the job continues and
    /// [`list`](Self::list) has it.
    ///
    /// # Errors
    /// [`Error::Spec`] if the command is invalid for any host; [`Error::Refused`] if a host can't be
    /// used, or a pattern matches none; [`Error::Spawn`] if the host can't be reached or refuses the
    /// command.
    pub async fn spawn(
        &self,
        target: impl Into<StartTarget>,
        command: Command,
    ) -> Result<Job, Error> {
        self.start(Verb::Spawn, target.into(), command).await
    }

    /// Starts a command for a caller who waits for its end: the policy may allow `run` and not `spawn`,
    /// or the other way round.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn run(
        &self,
        target: impl Into<StartTarget>,
        command: Command,
    ) -> Result<Job, Error> {
        self.start(Verb::Run, target.into(), command).await
    }

    /// Runs a command that only looks, on one host: as the account that logs in, without stdin and without a
    /// terminal.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn look(&self, host: &str, look: Look) -> Result<Job, Error> {
        self.start(Verb::Look, StartTarget::from(host), look.into_command()).await
    }

    /// Starts a command for one follower, who gets its output: the policy decides on `run`. The far end
    /// is held back while the follower is behind, as by a pipe, so that nothing is lost. The job has a
    /// connection of its own. Dropping the [`Follow`] stops holding the job back.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn follow(
        &self,
        target: impl Into<StartTarget>,
        mut command: Command,
    ) -> Result<Follow, Error> {
        let target = target.into();
        // The files on the host keep output that the follower has not read yet.
        if !command.draft.durable && matches!(target, StartTarget::Host(_)) {
            command.draft.pace = Pace::OfFollower;
        }
        let job = self.run(target, command).await?;
        match job.readable(Verb::Run).await {
            Ok(readable) => Ok(readable.follow_pacing()),
            Err(error) => {
                // Otherwise it would wait for its follower for ever.
                job.job.stop_pacing();
                Err(error)
            }
        }
    }

    async fn start(
        &self,
        verb: Verb,
        target: StartTarget,
        mut command: Command,
    ) -> Result<Job, Error> {
        let own = self.context().becomes.clone();
        let draft = &mut command.draft;
        draft.becomes = draft.becomes.take().or(own);
        let mut fleet = None;
        match target {
            StartTarget::Host(host) => draft.host = host,
            StartTarget::Fleet(spec) => fleet = Some(spec),
        }
        let start = Start {
            door: self.door.clone(),
            command,
            verb,
        };
        start.start(fleet).await
    }
}

impl Start {
    async fn start(mut self, fleet: Option<FleetSpec>) -> Result<Job, Error> {
        check_key(self.command.idempotency_key.as_deref())?;
        check_word("reason", self.command.reason.as_deref())?;
        let turn = &self.command.draft.turn;
        for earlier in turn.after.iter().chain(&turn.after_ok) {
            self.door.find(earlier).await?;
        }
        let mut shows_output = false;
        if let Some(fleet) = fleet {
            // A fleet is spawned, also by a caller who waits for it.
            shows_output = self.verb == Verb::Run;
            self.verb = Verb::Spawn;
            let plan = fleet.plan(&self.door).await?;
            self.command.draft.host = fleet::name(&plan);
            self.command.draft.fleet = Some(plan);
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
        door.check_secrets(self.verb, &self.command.draft, &hosts).await?;
        self.check_fetch(&hosts).await?;
        self.fill_template().await?;
        self.fill_env_setup();

        // Checked before the policy is asked, so that a mistake is reported as one.
        let spec: JobSpec = self.command.draft.clone().try_into()?;
        let id = sshjobs_job::Job::new_id(&spec);
        let start = StartCall {
            verb: self.verb,
            spec: &spec,
            id: &id,
            idempotency_key: self.command.idempotency_key.as_deref(),
            reason: self.command.reason.as_deref(),
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
                permit.fail(&error.to_string()).await;
                return Err(error);
            }
        };
        let is_approved = permit.is_approved();
        let reading = permit.reading();
        let order = StartOrder::new(door.caller(), spec, self.command.idempotency_key.take());
        let spawned = door.runner().spawn(permit, order, self.command.start_within).await;
        let job = match spawned {
            Ok(job) => Ok(job),
            Err(source) => Err(self.spawn_error(source).await),
        };
        if let [host] = hosts.as_slice()
            && self.command.draft.fleet.is_none()
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
        match &self.command.draft.fleet {
            Some(plan) => plan.members.to_vec(),
            None => vec![self.command.draft.host.clone()],
        }
    }

    async fn spawn_error(&self, source: SpawnError) -> Error {
        let host = self.command.draft.host.clone();
        // Any host may be allowed, so a mistyped name shows only when it can't be reached.
        let nearest = if source.is_unreachable() && self.command.draft.fleet.is_none() {
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
        let mut draft = self.command.draft.clone();
        draft.timeout = timeout;
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
                ..StartOrder::new(
                    self.door.caller(),
                    spec.clone(),
                    self.command.idempotency_key.clone(),
                )
            };
            let found = self.door.runner().find_started(order, self.command.start_within).await;
            let found = found.map_err(|source| Error::Spawn {
                host: spec.host.clone(),
                nearest: None,
                source,
            })?;
            // The earlier call may not have reached its start yet, perhaps in another process.
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

    /// Refuses a start whose files the caller could not copy back at its end.
    async fn check_fetch(&self, hosts: &[String]) -> Result<(), Error> {
        if self.command.draft.fetch.is_empty() {
            return Ok(());
        }
        for host in hosts {
            let on = HostAct::place(CallPlace {
                host,
                becomes: self.command.draft.becomes.as_ref(),
            });
            self.door.admission.ask(Verb::Get, on).await?;
        }
        Ok(())
    }

    /// Adds the commands that the configuration sets for the host, unless the call has its own. A fleet's members get those of
    /// their hosts when they start, and a look runs nothing else.
    fn fill_env_setup(&mut self) {
        let draft = &mut self.command.draft;
        if draft.env_setup.is_none() && draft.fleet.is_none() && self.verb != Verb::Look {
            draft.env_setup = self.door.book().env_setup(&draft.host).map(str::to_owned);
            draft.facts.has_default_setup = draft.env_setup.is_some();
        }
    }

    /// Replaces a template by its command, with the settings that the template has.
    async fn fill_template(&mut self) -> Result<(), Error> {
        let Some(wanted) = self.command.draft.template.clone() else { return Ok(()) };
        let members = self.command.draft.fleet.as_ref().map_or(&[][..], |plan| &plan.members);
        // Each member is asked about later.
        let host = members.first().unwrap_or(&self.command.draft.host);
        let admission = &self.door.admission;
        let (template, values) = admission.template(self.verb, host, &wanted).await?;
        admission.check_options(self.verb, &self.command.draft, &template).await?;
        self.command.draft.command = template.command_with(&values);
        if !template.allows_stdin && self.command.draft.terminal.is_none() {
            self.command.draft.stdin = Stdin::Closed;
        }
        if let Some(user) = template.becomes {
            self.command.draft.becomes =
                Some(Become::new(user, BecomeMethod::default()).map_err(SpecError::from)?);
        }
        self.command.draft.cwd = template.cwd;
        // A call may only shorten it.
        self.command.draft.timeout =
            self.command.draft.timeout.into_iter().chain(template.timeout).min();
        self.command.draft.template = Some(TemplateCall {
            params: values,
            ..wanted
        });
        Ok(())
    }
}

impl From<&str> for StartTarget {
    fn from(host: &str) -> Self {
        Self::Host(host.to_owned())
    }
}

impl From<String> for StartTarget {
    fn from(host: String) -> Self {
        Self::Host(host)
    }
}

impl From<FleetSpec> for StartTarget {
    fn from(hosts: FleetSpec) -> Self {
        Self::Fleet(hosts)
    }
}
