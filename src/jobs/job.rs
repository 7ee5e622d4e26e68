use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::door::{Act, Door, Inside, Look};
use super::{Error, Excerpt, Outcome, ReadQuery, Reading, Selection, Signal, Status, Summary};
use crate::job::{self, Caller, Fleet, Member};
use crate::nearest::nearest;
use crate::runner::{SignalError, SignalReport};

/// A job: one run of one command. A cheap handle; dropping it ends nothing.
#[derive(Clone)]
pub struct Job {
    pub(super) door: Door,
    pub(super) job: Arc<job::Job>,
}

/// Time limit for a killed job's end to be seen.
const END_SEEN: Duration = Duration::from_secs(5);

impl Job {
    /// The job's id: short, begins with its host, cannot be guessed.
    pub fn id(&self) -> &str {
        self.job.id.as_str()
    }

    /// Whose it is.
    pub fn caller(&self) -> &Caller {
        &self.job.caller
    }

    /// The caller who holds this handle.
    pub fn seen_by(&self) -> &Caller {
        self.door.caller()
    }

    /// The host, as the caller called it.
    pub fn host(&self) -> &str {
        &self.job.spec.host
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.job.spec.command
    }

    /// The word to find it by, if it has one.
    pub fn label(&self) -> Option<&str> {
        self.job.spec.label.as_deref()
    }

    /// Its members, when it is a fleet.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.job.fleet.as_ref()
    }

    /// The job of a member.
    ///
    /// # Errors
    /// [`Error::NoMember`]; [`Error::MemberNotStarted`] when it has no job; as [`Jobs::job`](super::Jobs::job).
    pub async fn member(&self, name: &str) -> Result<Self, Error> {
        let fleet = self.job.id.clone();
        let known = self.fleet().map(|fleet| {
            let members = fleet.members();
            members.iter().map(|member| (member.name.clone(), member.clone())).collect::<Vec<_>>()
        });
        let known = known.unwrap_or_default();
        match known.iter().find(|(known, _)| known == name) {
            Some((_, Member { job: Some(id), .. })) => {
                Ok(Self { door: self.door.clone(), job: self.door.find(id).await? })
            }
            Some((_, Member { outcome, .. })) => {
                let why =
                    outcome.as_ref().map_or_else(|| "it has not started".to_owned(), ToString::to_string);
                Err(Error::MemberNotStarted { fleet, name: name.to_owned(), why })
            }
            None => {
                let nearest = nearest(name, known.iter().map(|(name, _)| name.as_str())).map(str::to_owned);
                Err(Error::NoMember { fleet, name: name.to_owned(), nearest })
            }
        }
    }

    /// Whether the job goes on without us.
    pub fn is_durable(&self) -> bool {
        self.job.spec.durable
    }

    /// Whether the job runs on a terminal.
    pub fn has_terminal(&self) -> bool {
        self.job.spec.terminal.is_some()
    }

    /// State, times and counts at this moment.
    pub fn status(&self) -> Status {
        self.job.status()
    }

    /// The job as a list shows it.
    pub fn summary(&self) -> Summary {
        let owner = self.look(Look::Jobs).runner.owner(&self.job);
        Summary { owner: owner.filter(|_| !self.is_over()), ..Summary::of(&self.job) }
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.job.is_over()
    }

    pub(super) fn look(&self, verb: Look) -> &Inside {
        self.door.look(verb, &self.job.id)
    }

    fn act(&self, verb: Act) -> Result<&Inside, Error> {
        match &self.job.spec.fleet {
            Some(plan) => self.door.act_on_fleet(verb, &self.job.id, &plan.members),
            None => self.door.act(verb, &self.job.spec.host),
        }
    }

    /// Waits for the end of the job and returns its outcome. Cancel safe: the job goes on.
    pub async fn wait(&self) -> Outcome {
        self.look(Look::Wait);
        self.job.outcome().await
    }

    /// Waits for the end of the job, and returns whether it came within `patience`. Cancel safe: the job goes on.
    pub async fn wait_within(&self, patience: Duration) -> bool {
        self.look(Look::Wait);
        self.job.over_within(patience).await
    }

    /// Reads a part of its output by its position, at once. Past the end there is nothing, and that is no error. Cancel safe.
    pub async fn read(&self, query: &ReadQuery) -> (Reading, Status) {
        self.look(Look::Read);
        self.job.read(query).await
    }

    /// The newest lines in their clean view, at most `max_lines` and `max_bytes` of them.
    pub fn last_lines(&self, max_lines: usize, max_bytes: usize) -> Vec<String> {
        if max_lines == 0 {
            return Vec::new();
        }
        self.look(Look::Read);
        let page = self.job.last_page(max_lines, max_bytes);
        page.lines.into_iter().map(|line| line.text).collect()
    }

    /// The beginning and the end of the output within `max_bytes`, and the status at that moment. Cancel safe.
    pub async fn excerpt(&self, max_bytes: usize) -> (Excerpt, Status) {
        self.look(Look::Read);
        self.job.excerpt(max_bytes).await
    }

    /// Waits until the host has started the command or failed to, for `patience` at most.
    pub async fn started_within(&self, patience: Duration) {
        self.look(Look::Wait).runner.started(&self.job, patience).await;
    }

    /// Writes to its stdin. Cancelling may leave a part written.
    ///
    /// # Errors
    /// [`Error::Write`]: a command that does not read for as long as `patience` gives `Backpressure` and how much went.
    pub async fn write(&self, data: &[u8], patience: Duration) -> Result<(), Error> {
        Ok(self.act(Act::Write)?.runner.write(&self.job, data, patience).await?)
    }

    /// Ends its stdin, behind what is still being written, within `patience`. On a terminal that is a key, and others can be
    /// pressed after it.
    ///
    /// # Errors
    /// [`Error::Write`]; it is no error when stdin has ended.
    pub async fn close_stdin(&self, patience: Duration) -> Result<(), Error> {
        Ok(self.act(Act::Write)?.runner.close_stdin(&self.job, patience).await?)
    }

    /// Whether the job's stdin has ended.
    ///
    /// # Errors
    /// [`Error::Write`] when it does not run.
    pub fn is_stdin_closed(&self) -> Result<bool, Error> {
        Ok(self.look(Look::Jobs).runner.is_stdin_closed(&self.job)?)
    }

    /// Tells its terminal a new size in columns and rows.
    ///
    /// # Errors
    /// [`Error::Write`] when it has none, or does not run.
    pub async fn resize(&self, size: (u32, u32)) -> Result<(), Error> {
        Ok(self.act(Act::Write)?.runner.resize(&self.job, size).await?)
    }

    /// Sends `signal` to every process of the job; with `grace`, what still lives after it gets KILL. Cancelling may leave the
    /// signal sent.
    ///
    /// # Errors
    /// [`Error::Signal`] when nothing is left to signal, or the host can't be reached for it.
    pub async fn signal(&self, signal: Signal, grace: Option<Duration>) -> Result<SignalReport, Error> {
        Ok(self.act(Act::Signal)?.runner.signal(&self.job, signal, grace).await?)
    }

    /// Kills the job, if it still runs, and waits for its end, five seconds at most.
    ///
    /// # Errors
    /// [`Error::Signal`] when the host can't be reached for it, [`Error::StillRunning`] when its end has not come.
    pub async fn kill(&self) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        match self.signal(Signal::KILL, None).await {
            Ok(_) | Err(Error::Signal(SignalError::JobEnded)) => {}
            Err(error) => return Err(error),
        }
        if self.wait_within(END_SEEN).await { Ok(()) } else { Err(Error::StillRunning(self.job.id.clone())) }
    }

    /// Gives up a finished job and its output; returns how many lines and bytes went.
    ///
    /// # Errors
    /// [`Error::StillRunning`]; [`Error::Denied`].
    pub async fn forget(&self) -> Result<(u64, u64), Error> {
        let inside = self.act(Act::Forget)?;
        if !self.is_over() {
            return Err(Error::StillRunning(self.job.id.clone()));
        }
        self.forget_members().await?;
        let forgotten = self.forget_output(Selection::Both).await?;
        inside.runner.forget(&self.job).await;
        Ok(forgotten)
    }

    /// The jobs of a fleet's members go with it.
    async fn forget_members(&self) -> Result<(), Error> {
        let members = self.fleet().map(|fleet| fleet.members().clone()).unwrap_or_default();
        for id in members.iter().filter_map(|member| member.job.as_ref()) {
            match self.door.find(id).await {
                Ok(member) => {
                    member.forget_output(Selection::Both).await;
                    self.act(Act::Forget)?.runner.forget(&member).await;
                }
                Err(Error::UnknownJob(_) | Error::Expired(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives up the finished lines of the selected streams; returns how many lines and bytes went. Numbers never return.
    ///
    /// # Errors
    /// [`Error::Denied`].
    pub async fn forget_output(&self, selection: Selection) -> Result<(u64, u64), Error> {
        self.act(Act::Forget)?;
        Ok(self.job.forget_output(selection).await)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.job.id).finish()
    }
}
