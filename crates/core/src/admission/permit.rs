//! Permits: leave to do one thing once.

use std::sync::Arc;
use std::time::Duration;

use super::judge::{Judge, StartClaim};
use crate::hosts::HostRef;
use sshjobs_job::{Caller, Job, JobId};
use sshjobs_policy::Verb;

/// Leave of a caller to do one thing. Only [`Admission`](super::Admission) makes one, and what acts on
/// a host or shows output takes one, so that code which has not asked does not compile:
///
/// ```compile_fail,E0061
/// # use sshjobs_core::runner::{Runner, StartOrder};
/// # async fn start(runner: Runner, order: StartOrder, timeout: std::time::Duration) {
/// runner.spawn(order, patience).await.ok();
/// # }
/// ```
/// ```
/// # use sshjobs_core::admission::{Permit, Start};
/// # use sshjobs_core::runner::{Runner, StartOrder};
/// # async fn start(runner: Runner, permit: Permit<Start>, order: StartOrder, timeout: std::time::Duration) {
/// runner.spawn(permit, order, timeout).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn write(runner: Runner, job: &SeenJob, timeout: std::time::Duration) {
/// runner.write(job, b"yes", patience).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn close(runner: Runner, job: &SeenJob, timeout: std::time::Duration) {
/// runner.close_stdin(job, patience).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn resize(runner: Runner, job: &SeenJob, size: sshjobs_output::TerminalSize) {
/// runner.resize(job, size).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn signal(runner: Runner, job: &SeenJob, signal: sshjobs_job::Signal) {
/// runner.signal(job, signal, None).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn forget(runner: Runner, job: &SeenJob) {
/// runner.forget(job).await;
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn inspect(runner: Runner, job: &SeenJob) {
/// runner.processes(job).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::runner::{Runner, SeenJob};
/// # async fn screen(runner: Runner, job: &SeenJob) {
/// runner.screen(job);
/// # }
/// ```
/// ```compile_fail,E0599
/// # use sshjobs_core::runner::SeenJob;
/// # fn last_lines(fleet: &SeenJob) {
/// fleet.summary();
/// # }
/// ```
/// Leave to signal a job does not include leave to read it:
///
/// ```compile_fail,E0599
/// # use sshjobs_core::admission::SignalJob;
/// # use sshjobs_core::runner::Permitted;
/// # fn read(job: Permitted<'_, SignalJob>, max_lines: usize) {
/// job.last_page(max_lines, 1000);
/// # }
/// ```
/// ```compile_fail,E0599
/// # use sshjobs_core::runner::SeenJob;
/// # async fn tail(job: &SeenJob, query: &sshjobs_output::PageQuery, wait: &sshjobs_job::Wait) {
/// job.tail(query, wait).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::files::HostFiles;
/// # use sshjobs_core::hosts::{HostRef, Hosts};
/// # async fn copy(hosts: &std::sync::Arc<Hosts>, host: &HostRef) {
/// HostFiles::open(hosts, host, None).await.ok();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use sshjobs_core::forward::{ForwardOptions, ForwardSpec, Forwards};
/// # use sshjobs_core::hosts::{HostRef, Hosts};
/// # async fn forward(forwards: Forwards, hosts: &std::sync::Arc<Hosts>, host: &HostRef, spec: ForwardSpec) {
/// forwards.open(hosts, host, spec, ForwardOptions::default()).await.ok();
/// # }
/// ```
/// A permit can't be made up, either:
///
/// ```compile_fail,E0624
/// # use sshjobs_core::admission::{Permit, SignalJob};
/// # fn make_up(caller: &sshjobs_job::Caller, job: sshjobs_job::JobId) {
/// let permit = Permit::<SignalJob>::new(caller, sshjobs_policy::Verb::Signal, job);
/// # }
/// ```
///
/// Dropping it without an act gives back its reservations.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives back its reservations"]
pub struct Permit<A: Act> {
    caller: Caller,
    verb: Verb,
    pub(super) subject: A::Subject,
}

/// Kind of act that a permit allows.
pub trait Act: sealed::Sealed {
    /// The job or host that it acts on, with its reservations.
    type Subject: std::fmt::Debug;
}

mod sealed {
    #[expect(unnameable_types, reason = "other crates must not name it")]
    pub trait Sealed {}
}

/// Declares kinds of acts, each a type that has no values.
macro_rules! acts {
    ($($(#[$doc:meta])* $act:ident on $subject:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $act {}

            impl sealed::Sealed for $act {}

            impl Act for $act {
                type Subject = $subject;
            }
        )*
    };
}

acts! {
    /// Starts a job, on one host or on many.
    Start on Starts;
    /// Shows output of a job: tail, read, search, run.
    ReadOutput on JobId;
    /// Writes to the stdin of a job, or sets the size of its terminal.
    WriteInput on JobId;
    /// Signals a job, or cancels it in its queue.
    SignalJob on JobId;
    /// Deletes a job or its output.
    ForgetJob on JobId;
    /// Holds or releases a whole queue, by its name.
    HoldQueue on String;
    /// Reads or writes files of a host.
    UseFiles on FilesOfHost;
    /// Forwards a port or a socket through a host.
    OpenForward on HostRef;
    /// Connects to a host without a command: probes it, or asks for its key.
    Connect on HostRef;
}

/// A host whose files may be used.
#[derive(Debug)]
pub struct FilesOfHost {
    pub(super) host: HostRef,
    /// Maximum bytes of a file. `None` without a limit.
    pub(super) most_bytes: Option<u64>,
}

/// Starts that are allowed: one, or those of a fleet's members. Room for their jobs is reserved.
pub struct Starts {
    pub(super) judge: Arc<Judge>,
    pub(super) claims: Vec<StartClaim>,
    /// The time limit of the job.
    pub(super) timeout: Option<Duration>,
    /// The id that the job gets. Approvals name it.
    pub(super) id: JobId,
}

impl<A: Act> Permit<A> {
    pub(super) fn new(caller: &Caller, verb: Verb, subject: A::Subject) -> Self {
        Self {
            caller: caller.clone(),
            verb,
            subject,
        }
    }

    /// The caller who may do it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The verb that the policy has allowed.
    pub fn verb(&self) -> Verb {
        self.verb
    }
}

impl<A: Act<Subject = JobId>> Permit<A> {
    /// The job that it is about.
    pub fn job(&self) -> &JobId {
        &self.subject
    }
}

impl Permit<HoldQueue> {
    /// Name of the queue.
    pub fn queue(&self) -> &str {
        &self.subject
    }
}

impl<A: Act<Subject = HostRef>> Permit<A> {
    /// The host that it is about.
    pub fn host(&self) -> &HostRef {
        &self.subject
    }
}

impl Permit<UseFiles> {
    /// The host that it is about.
    pub fn host(&self) -> &HostRef {
        &self.subject.host
    }

    /// Maximum bytes of a file. `None` without a limit.
    pub fn most_bytes(&self) -> Option<u64> {
        self.subject.most_bytes
    }
}

impl Permit<Start> {
    /// The id that the job gets.
    pub fn job(&self) -> &JobId {
        &self.subject.id
    }

    /// The time limit of the job: that of the caller, or a shorter one of the policy.
    pub fn timeout(&self) -> Option<Duration> {
        self.subject.timeout
    }

    /// Whether a person has agreed to it.
    pub fn is_approved(&self) -> bool {
        self.subject.claims.iter().any(StartClaim::is_approved)
    }

    /// Marks the start as under way. From here on the command may run.
    pub(crate) fn begin(self) -> StartUnderWay {
        StartUnderWay(self)
    }

    /// Leave to read the output of the job, if the caller may run it and not only start it.
    pub(crate) fn reading(&self) -> Option<Permit<ReadOutput>> {
        matches!(self.verb, Verb::Run | Verb::Look)
            .then(|| Permit::new(&self.caller, self.verb, self.subject.id.clone()))
    }

    /// Records that the call has failed before its start began, and gives approvals back.
    pub(crate) async fn fail(self, why: &str) {
        self.begin().fail(why, true).await;
    }
}

/// A permitted start that is under way. Dropping it leaves open whether the job was started: an approval
/// stays used, because the command may run.
#[must_use = "the outcome of a start is recorded"]
pub(crate) struct StartUnderWay(Permit<Start>);

impl StartUnderWay {
    /// Counts the job that was started, for the limits of the rules, and records it. Its idempotency key
    /// may have led to an earlier job, which then has the approval.
    pub(crate) async fn commit(mut self, job: &Arc<Job>) {
        let starts = &mut self.0.subject;
        for claim in std::mem::take(&mut starts.claims) {
            claim.note_job(job);
            if job.id != starts.id {
                starts.judge.note_job_of_approval(&claim, &job.id).await;
            }
        }
    }

    /// Records that the start has failed. If nothing can have run, approvals are given back.
    pub(crate) async fn fail(mut self, why: &str, has_started_nothing: bool) {
        let starts = &mut self.0.subject;
        for claim in std::mem::take(&mut starts.claims) {
            claim.note_failure(why.to_owned()).await;
            if has_started_nothing {
                starts.judge.give_back_approval(&claim).await;
            }
        }
    }
}

impl Drop for StartUnderWay {
    fn drop(&mut self) {
        // First: dropping `Starts` with claims would give approvals back.
        self.0.subject.claims.clear();
    }
}

impl std::fmt::Debug for Starts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starts").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        // The call was cancelled before anything was started. Room under the limits is given back by the
        // claims themselves.
        let claims = std::mem::take(&mut self.claims);
        if !claims.is_empty() {
            self.judge.give_back_later(claims);
        }
    }
}
