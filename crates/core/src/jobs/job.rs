//! The handle of a job. Dropping it, or any of its futures, never ends the job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use secrecy::zeroize::Zeroizing;

use super::attention::OngoingCall;
use super::door::Door;
use super::error::Error;
use crate::admission::{Act, CallContent, ForgetJob, Permit, ReadOutput};
use crate::jobs::{EndCause, Line, Outcome, Phase, Selection, Signal, Status, Summary, WaitsFor};
use crate::runner::{Permitted, SeenJob, SignalError, SignalReport};
use sshjobs_base::nearest::nearest;
use sshjobs_job::{Caller, Draft, JobFacts, JobId, Member, Stdin, prefixed};
use sshjobs_output::{Resize, TerminalSize};
use sshjobs_policy::Verb;

/// A job: one run of one command. A cheap handle; dropping it ends nothing.
#[derive(Clone)]
pub struct Job {
    pub(super) door: Door,
    pub(super) job: SeenJob,
    /// Whether this handle comes from a start that a person has approved: its input needs no approval
    /// of its own.
    pub(super) is_approved: bool,
    /// Leave to read the output that came with the start: the caller may run it.
    pub(super) reading: Option<Arc<Permit<ReadOutput>>>,
    /// A durable job counts as asked for as long as a handle lives.
    pub(super) _call: Option<Arc<OngoingCall>>,
}

/// How a job was started, without values that may be secret.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The command and its surroundings.
    pub facts: JobFacts,
    /// Names of variables that were given a value.
    pub env: Vec<String>,
    /// Names of secrets, by variable.
    pub secret_env: BTreeMap<String, String>,
    /// Name of the secret that was its stdin.
    pub secret_stdin: Option<String>,
    /// Whether it ran a script, whose text is not kept.
    pub has_script: bool,
    /// Whether its stdin was left open.
    pub has_open_stdin: bool,
}

/// Input with a secret of the configuration.
#[derive(Clone, Copy)]
pub struct SecretInput<'a> {
    /// Name of the secret.
    pub name: &'a str,
    /// Bytes before its value.
    pub before: &'a [u8],
    /// Bytes after its value.
    pub after: &'a [u8],
    /// Whether a person who has to approve it may see these bytes.
    pub is_shown: bool,
}

/// Time limit for the end of a killed job to be recorded.
const END_SEEN: Duration = Duration::from_secs(5);

impl Job {
    pub(super) fn new(door: Door, job: SeenJob) -> Self {
        let call = door.inside.attention.during_call(&job);
        Self {
            _call: call.map(Arc::new),
            ..Self::listed(door, job)
        }
    }

    /// A handle that does not count as a call for the job.
    pub(super) fn listed(door: Door, job: SeenJob) -> Self {
        Self {
            door,
            job,
            is_approved: false,
            reading: None,
            _call: None,
        }
    }

    /// The same handle, for a call that names the job: it counts as long as the handle lives.
    pub async fn named(self) -> Self {
        let attention = &self.door.inside.attention;
        attention.note(&self.job).await;
        let call = attention.during_call(&self.job);
        Self {
            _call: call.map(Arc::new),
            ..self
        }
    }

    /// Asks the policy about a verb that shows none of its output.
    pub(super) async fn ask(&self, verb: Verb) -> Result<(), Error> {
        Ok(self.door.admission.judge_job(verb, self.job.judged()).await?)
    }

    /// How it was started, without the values of its variables and without text for stdin.
    pub fn recipe(&self) -> Recipe {
        let draft: &Draft = self.job.spec();
        let is_secret = |name: &&str| draft.secrets.env.contains_key(*name);
        let names = draft.variables().map(|(name, _)| name).filter(|name| !is_secret(name));
        Recipe {
            facts: draft.facts.clone(),
            env: names.map(str::to_owned).collect(),
            secret_env: draft.secrets.env.clone(),
            secret_stdin: draft.secrets.stdin.clone(),
            has_script: draft.script().is_some(),
            has_open_stdin: matches!(draft.stdin, Stdin::Open),
        }
    }

    /// The job's id: short, starts with its host's name, can't be guessed.
    pub fn id(&self) -> &str {
        self.job.id().as_str()
    }

    /// Owner of the job.
    pub fn caller(&self) -> &Caller {
        self.job.caller()
    }

    /// The caller of this handle.
    pub fn seen_by(&self) -> &Caller {
        self.door.caller()
    }

    /// The host, as named by the caller.
    pub fn host(&self) -> &str {
        &self.job.spec().host
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.job.spec().command
    }

    /// Its label, if any.
    pub fn label(&self) -> Option<&str> {
        self.job.spec().label.as_deref()
    }

    /// Whether it is a fleet.
    pub fn is_fleet(&self) -> bool {
        self.job.is_fleet()
    }

    /// The members of a fleet and their current states, in the requested order, without lines of their
    /// output. Empty for a job on one host.
    pub fn members(&self) -> Vec<Member> {
        self.job.members()
    }

    /// The failures after which no further member of a fleet starts, in words.
    pub fn why_stopped(&self) -> Option<String> {
        self.job.spec().fleet.as_ref()?.why_stopped(&self.members())
    }

    /// The job of a member.
    ///
    /// # Errors
    /// [`Error::NoMember`]; [`Error::MemberNotStarted`] if it has no job; and those of
    /// [`Jobs::job`](super::jobs::Jobs::job).
    pub async fn member(&self, name: &str) -> Result<Self, Error> {
        let fleet = self.job.id().clone();
        let members = self.members();
        let Some(member) = members.iter().find(|member| member.name == name) else {
            let names = members.iter().map(|member| member.name.as_str());
            return Err(Error::NoMember {
                fleet,
                name: name.to_owned(),
                nearest: nearest(name, names).map(str::to_owned),
            });
        };
        let Some(id) = &member.job else {
            let why = member.result().map_or_else(
                || "it has not started".to_owned(),
                |result| result.outcome.to_string(),
            );
            return Err(Error::MemberNotStarted {
                fleet,
                name: name.to_owned(),
                why,
            });
        };
        Ok(Self {
            is_approved: self.is_approved,
            ..Self::listed(self.door.clone(), self.door.find(id).await?)
        })
    }

    /// Whether the job outlives this process.
    pub fn is_durable(&self) -> bool {
        self.job.spec().durable
    }

    /// Size of its terminal at the start. `None` without a terminal.
    pub fn terminal_size(&self) -> Option<TerminalSize> {
        self.job.spec().terminal.as_ref().map(sshjobs_job::Terminal::size)
    }

    /// Whether the job runs on a terminal.
    pub fn has_terminal(&self) -> bool {
        self.job.spec().terminal.is_some()
    }

    /// Current state, times and counts.
    pub fn status(&self) -> Status {
        self.with_staleness(self.job.status())
    }

    /// The status, marked as stale if another replica may know more.
    pub(super) fn with_staleness(&self, status: Status) -> Status {
        let is_stale = status.is_stale || self.may_be_behind();
        Status { is_stale, ..status }
    }

    /// Whether another replica of the cluster may know more of a running job: the lease of this one
    /// was not renewed in time, or another one has taken the host over.
    fn may_be_behind(&self) -> bool {
        let runner = self.door.runner();
        let Some(peers) = runner.peers() else { return false };
        if self.is_over() {
            return false;
        }
        let is_recorded_here = !self.job.is_fleet() && runner.owner(&self.job).is_none();
        !peers.may_act() || (is_recorded_here && !peers.holds(&self.job.spec().host))
    }

    /// Whether this process has every line that any process has shown. In a cluster only the replica that records a job
    /// knows: even the leader of NATS may lack the newest output, just after it was elected.
    pub(super) fn has_every_line(&self) -> bool {
        let runner = self.door.runner();
        if runner.peers().is_none() || self.is_over() {
            return true;
        }
        runner.owner(&self.job).is_none() && !self.may_be_behind() && !self.job.is_given_up()
    }

    /// The job as an entry of a list.
    pub fn summary(&self) -> Summary {
        self.door.runner().summary(&self.job)
    }

    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.job.is_over()
    }

    /// Waits for the end of the job and returns its outcome. Cancel safe: the job continues.
    pub async fn wait(&self) -> Outcome {
        self.job.outcome().await
    }

    /// Waits for the end of the job, at most for `patience`. Returns whether it has ended. Cancel
    /// safe: the job continues.
    pub async fn wait_within(&self, patience: Duration) -> bool {
        self.job.over_within(patience).await
    }

    /// Changes of its terminal's size, oldest first. Only the newest are kept.
    pub fn resizes(&self) -> Vec<Resize> {
        self.job.resizes()
    }

    /// The job, for the act that a permit for it allows.
    pub(super) fn with<A: Act<Subject = JobId>>(&self, permit: &Permit<A>) -> Permitted<'_, A> {
        self.job.with(permit).expect("the permit was made for this job")
    }

    /// Whether it seems to wait for input on its stdin; in a fleet never.
    pub async fn awaits_input(&self, selection: Selection) -> bool {
        self.door.runner().awaits_input(&self.job, selection).await
    }

    /// The host that printed a line of a fleet. `None` for a job on one host.
    pub fn host_of(&self, line: &Line) -> Option<&str> {
        self.job.host_of(line)
    }

    /// A line as text: in a fleet, after the name of its host.
    pub fn display(&self, line: Line) -> String {
        // Without a copy: a reader may take many lines.
        match self.host_of(&line) {
            Some(host) => prefixed(host, &line.text),
            None => line.text,
        }
    }

    /// Waits until the host has started the command or failed to, at most for `patience`.
    pub async fn started_within(&self, patience: Duration) {
        self.job.started_within(patience).await;
    }

    /// Writes to its stdin. Cancelling may leave a part written.
    ///
    /// # Errors
    /// [`Error::Write`]: if the command does not read for `patience`, `Backpressure` with the
    /// number of bytes written.
    pub async fn write(&self, data: &[u8], patience: Duration) -> Result<(), Error> {
        self.write_content(CallContent::SecretStdin(data), data, patience).await
    }

    /// Like [`write`](Self::write), for input that a person who has to approve it may see.
    pub async fn write_visibly(&self, data: &[u8], patience: Duration) -> Result<(), Error> {
        self.write_content(CallContent::Stdin(data), data, patience).await
    }

    async fn write_content(
        &self,
        content: CallContent<'_>,
        data: &[u8],
        patience: Duration,
    ) -> Result<(), Error> {
        // The input of a start that was approved is part of it, as long as this handle has it.
        let content = (!self.is_approved).then_some(content);
        let permit = self.door.admission.admit_input(self.job.judged(), content).await?;
        Ok(self.door.runner().write(self.with(&permit), data, patience).await?)
    }

    /// Writes input with a secret of the configuration to its stdin. The job's output shows the name of the
    /// secret in place of its value from here on. Cancelling may leave a part written. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Secret`] if the caller may not use it on each of the job's hosts, if it can't be read,
    /// or if the job is durable and was started without it; those of [`write`](Self::write).
    pub async fn write_secret(
        &self,
        input: SecretInput<'_>,
        patience: Duration,
    ) -> Result<usize, Error> {
        let SecretInput {
            name,
            before,
            after,
            is_shown,
        } = input;
        self.door.check_secret(Verb::Write, name, self.job.spec().hosts()).await?;
        let others = Zeroizing::new([before, after].concat());
        let content = CallContent::NamedSecret {
            name,
            others: &others,
            is_shown,
        };
        let content = (!self.is_approved).then_some(content);
        let permit = self.door.admission.admit_input(self.job.judged(), content).await?;
        let job = self.with(&permit);

        let secret = self.door.secret_for_job(name, job).await?;
        let secret = secret.expose_secret().as_bytes();
        let mut data = Zeroizing::new(Vec::with_capacity(others.len() + secret.len()));
        data.extend_from_slice(before);
        data.extend_from_slice(secret);
        data.extend_from_slice(after);
        self.door.runner().write(job, &data, patience).await?;
        Ok(data.len())
    }

    /// Closes its stdin after the pending writes. Waits at most `patience`. On a terminal this
    /// sends a key, and others can follow.
    ///
    /// # Errors
    /// [`Error::Write`]. Succeeds if stdin is already closed.
    pub async fn close_stdin(&self, patience: Duration) -> Result<(), Error> {
        let permit = self.door.admission.admit_input(self.job.judged(), None).await?;
        Ok(self.door.runner().close_stdin(self.with(&permit), patience).await?)
    }

    /// Whether the job's stdin is closed.
    ///
    /// # Errors
    /// [`Error::Write`] if the job does not run.
    pub async fn is_stdin_closed(&self) -> Result<bool, Error> {
        Ok(self.door.runner().is_stdin_closed(&self.job).await?)
    }

    /// Sets the size of its terminal in columns and rows.
    ///
    /// # Errors
    /// [`Error::Write`] if it has no terminal, or does not run.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        let permit = self.door.admission.admit_input(self.job.judged(), None).await?;
        Ok(self.door.runner().resize(self.with(&permit), size).await?)
    }

    /// The reason for which a job is queued now. `None` if it may start.
    pub async fn waits_for(&self) -> Option<WaitsFor> {
        self.door.runner().waits_for(&self.job).await
    }

    /// Why the job ended. `None` if it has not. If it was killed, its host may be asked, for at most some
    /// seconds; if it can't be reached, the cause stays unknown.
    pub async fn end_cause(&self) -> Option<EndCause> {
        self.door.runner().end_cause(&self.job).await
    }

    /// Sends `signal` to every process of the job. With `grace`, processes that are still alive
    /// after it get KILL. Cancelling may leave the signal sent.
    ///
    /// # Errors
    /// [`Error::Signal`] if no process is left to signal, or the host can't be reached.
    pub async fn signal(
        &self,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, Error> {
        let permit = self.door.admission.admit_signal(self.job.judged()).await?;
        Ok(self.door.runner().signal(self.with(&permit), signal, grace).await?)
    }

    /// Kills the job, if it still runs, and waits for its end, at most five seconds.
    ///
    /// # Errors
    /// [`Error::Signal`] if the host can't be reached, [`Error::StillRunning`] if it has not ended
    /// in time.
    pub async fn kill(&self) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        match self.signal(Signal::KILL, None).await {
            // The job may have ended since the check above.
            Ok(_) | Err(Error::Signal(SignalError::JobEnded)) => {}
            Err(error) => return Err(error),
        }
        if self.wait_within(END_SEEN).await {
            Ok(())
        } else {
            Err(Error::StillRunning(self.job.id().clone()))
        }
    }

    /// Deletes a finished job and its output, or cancels a queued one and deletes it. Returns the number of
    /// lines and bytes deleted.
    ///
    /// # Errors
    /// [`Error::StillRunning`]; [`Error::Refused`].
    pub async fn forget(&self) -> Result<(u64, u64), Error> {
        let permit = self.door.admission.admit_forgetting(self.job.judged()).await?;
        if self.status().phase == Phase::Queued {
            self.cancel_queued().await?;
        }
        if !self.is_over() {
            return Err(Error::StillRunning(self.job.id().clone()));
        }
        // Members first: if one can't be deleted, the fleet is kept and can be forgotten again.
        self.forget_members(&permit).await?;
        let job = self.with(&permit);
        let forgotten = job.forget_output(Selection::Both).await;
        self.door.runner().forget(job).await;
        Ok(forgotten)
    }

    /// Kills the job, if it still runs, and deletes it. A durable job is deleted also if its host does not report the end
    /// within five seconds of KILL: its follower may hang, or lie. Returns the number of lines and bytes deleted.
    ///
    /// # Errors
    /// Those of [`kill`](Self::kill) and [`forget`](Self::forget).
    pub async fn kill_and_forget(&self) -> Result<(u64, u64), Error> {
        let permit = self.door.admission.admit_forgetting(self.job.judged()).await?;
        if !self.job.spec().durable || self.is_over() {
            self.kill().await?;
            return self.forget().await;
        }
        let is_dead = match self.signal(Signal::KILL, None).await {
            Ok(report) => report.confirmed_dead,
            Err(Error::Signal(SignalError::JobEnded)) => true,
            Err(error) => return Err(error),
        };
        if !self.wait_within(END_SEEN).await {
            if !is_dead {
                return Err(Error::StillRunning(self.job.id().clone()));
            }
            tracing::warn!(job = %self.job.id(), "it was killed, and is removed without a report of its end");
            self.door.runner().end_unreported(self.with(&permit)).await;
        }
        self.forget().await
    }

    /// Cancels a queued job. One that has started meanwhile continues.
    async fn cancel_queued(&self) -> Result<(), Error> {
        let permit = self.door.admission.admit_signal(self.job.judged()).await?;
        let runner = self.door.runner();
        // Queued by another process, which cancels it.
        if !runner.cancel_queued(self.with(&permit)).await && runner.owner(&self.job).is_some() {
            self.kill().await?;
        }
        Ok(())
    }

    /// Deletes the jobs of a fleet's members, too.
    async fn forget_members(&self, permit: &Permit<ForgetJob>) -> Result<(), Error> {
        let members = self.members();
        for id in members.iter().filter_map(|member| member.job.as_ref()) {
            match self.door.find(id).await {
                Ok(member) => {
                    let Some(member) = member.with(permit) else { continue };
                    member.forget_output(Selection::Both).await;
                    self.door.runner().forget(member).await;
                }
                Err(Error::UnknownJob(_) | Error::Expired(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes the finished lines of the selected streams. Returns the number of lines and bytes
    /// deleted. Line numbers are never reused.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn forget_output(&self, selection: Selection) -> Result<(u64, u64), Error> {
        let permit = self.door.admission.admit_forgetting(self.job.judged()).await?;
        Ok(self.with(&permit).forget_output(selection).await)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(self.job.id()).finish()
    }
}
