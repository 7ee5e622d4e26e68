//! A job that a caller sees, and its acts, each of which takes a permit.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::{Act, ForgetJob, JudgedJob, Permit, ReadOutput, SignalJob};
use sshjobs_job::{Caller, Fleet, Job, JobId, JobSpec, Member, Outcome, Reached, Status};
use sshjobs_output::{Line, LineNo, Resize, Selection};

/// A job that a caller sees. How it stands is free; its output, its input and its end take a permit.
#[derive(Clone)]
pub struct SeenJob(pub(super) Arc<Job>);

/// A job, for one act that a permit allows.
pub struct Permitted<'a, A> {
    job: &'a Arc<Job>,
    act: PhantomData<fn() -> A>,
}

impl SeenJob {
    pub(crate) fn new(job: Arc<Job>) -> Self {
        Self(job)
    }

    /// The job, for the act that the permit allows. A permit for a fleet is for its members, too. `None` if it
    /// is for another job.
    pub(crate) fn with<A>(&self, permit: &Permit<A>) -> Option<Permitted<'_, A>>
    where
        A: Act<Subject = JobId>,
    {
        let is_for_it = *permit.job() == self.0.id;
        let is_for_its_fleet = self.0.spec.member_of.as_ref() == Some(permit.job());
        (is_for_it || is_for_its_fleet).then(|| Permitted::new(&self.0))
    }

    /// Facts that the admission of a call depends on.
    pub(crate) fn judged(&self) -> JudgedJob<'_> {
        JudgedJob::of(&self.0)
    }

    /// Its id.
    pub fn id(&self) -> &JobId {
        &self.0.id
    }

    /// Its owner among the callers.
    pub fn caller(&self) -> &Caller {
        &self.0.caller
    }

    /// Its specification.
    pub fn spec(&self) -> &JobSpec {
        &self.0.spec
    }

    /// Whether it is a fleet.
    pub fn is_fleet(&self) -> bool {
        self.0.fleet.is_some()
    }

    /// The members of a fleet, without the lines of their output. Empty for a job on one host.
    pub fn members(&self) -> Vec<Member> {
        let members = self.0.fleet.as_ref().map(Fleet::members).unwrap_or_default();
        members.into_iter().map(Member::without_lines).collect()
    }

    /// Current state, times and counts.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Waits for its end.
    pub async fn outcome(&self) -> Outcome {
        self.0.outcome().await
    }

    /// Waits for its end, at most for `patience`. Returns whether it has ended.
    pub async fn over_within(&self, patience: Duration) -> bool {
        self.0.over_within(patience).await
    }

    /// Waits until it has started or failed to, at most for `patience`.
    pub async fn started_within(&self, patience: Duration) {
        self.0.wait_for(patience, |log| log.phase().has_started()).await;
    }

    /// Waits until its line at a cursor is here, at most for `patience`.
    pub async fn reached(&self, cursor: LineNo, patience: Duration) -> Reached {
        self.0.reached(cursor, patience).await
    }

    /// Whether this process has given up the job's newest output.
    pub fn is_given_up(&self) -> bool {
        self.0.is_given_up()
    }

    /// Changes of its terminal's size, oldest first.
    pub fn resizes(&self) -> Vec<Resize> {
        self.0.resizes()
    }

    /// The host that printed a line of a fleet.
    pub fn host_of(&self, line: &Line) -> Option<&str> {
        self.0.host_of(line)
    }

    /// Lets a job that waits for its follower continue without one.
    pub fn stop_pacing(&self) {
        self.0.stop_pacing();
    }
}

impl fmt::Debug for SeenJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SeenJob").field(&self.0.id).finish()
    }
}

impl<'a> Permitted<'a, ReadOutput> {
    /// For notifications of the program, which no caller has asked for.
    pub(crate) fn for_notifications(job: &'a Arc<Job>) -> Self {
        Self::new(job)
    }
}

impl<'a> Permitted<'a, SignalJob> {
    /// For the end of an abandoned job, which the configuration orders.
    pub(crate) fn for_abandonment(job: &'a Arc<Job>) -> Self {
        Self::new(job)
    }
}

impl<'a, A> Permitted<'a, A> {
    /// For the runner itself, which carries out calls that were admitted before.
    pub(super) fn new(job: &'a Arc<Job>) -> Self {
        Self {
            job,
            act: PhantomData,
        }
    }

    /// Facts of the job.
    pub(crate) fn judged(self) -> JudgedJob<'a> {
        JudgedJob::of(self.job)
    }

    /// The job, for the runner, whose methods say which act they perform.
    pub(super) fn job(self) -> &'a Arc<Job> {
        self.job
    }
}

impl<A> Clone for Permitted<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Permitted<'_, A> {}

/// Every read of a job goes through this one way.
impl Deref for Permitted<'_, ReadOutput> {
    type Target = Arc<Job>;

    fn deref(&self) -> &Arc<Job> {
        self.job
    }
}

impl Permitted<'_, ForgetJob> {
    /// Deletes the finished lines of the selected streams. Returns the number of lines and bytes
    /// deleted.
    pub(crate) async fn forget_output(self, selection: Selection) -> (u64, u64) {
        self.job.forget_output(selection).await
    }
}
