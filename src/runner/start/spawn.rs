//! The steps of a start: idempotency key, reservation, admission to the store, command,
//! recording.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::ready;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::first_output::{FirstEvents, FirstWords};
use super::open_channel::{OpenChannel, Tries};
use crate::hosts::{HostRef, Lease, Link};
use crate::job::{
    Announcements, ExecPlan, Identity, Job, JobSpec, Log, Outcome, Pace, Phase, PlanError,
    Recorder, Scope,
};
use crate::runner::durable::{start_durable, start_on_host};
use crate::runner::foreign::lookup;
use crate::runner::record::{Attached, AttachedControls, Recording, record};
use crate::runner::state::{Limits, Lookup, Meter, Order, Shared, SpawnError, Stdin, chain};
use crate::runner::storing::{Admission, Storing};
use crate::ssh::{Channel, ChannelEvent, ChannelReader, ChannelWriter};
use crate::store::Record;

/// Time limit for the server to accept the command.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a job is expected to last.
const LASTING: Duration = Duration::from_secs(1);

/// Implements [`Runner::spawn`](crate::runner::api::Runner::spawn).
pub(crate) async fn spawn(
    shared: &Arc<Shared>,
    mut order: Order,
    patience: Duration,
) -> Result<Arc<Job>, SpawnError> {
    ExecPlan::check(&order.spec)?;
    let deadline = Instant::now() + patience;
    let reserved = loop {
        match reserve(shared, order)? {
            Reserve::New(reserved) => break *reserved,
            Reserve::Again(job, unused) => {
                let answer = started(&job, deadline).await;
                // If the first call failed before its job started, this call starts one.
                if shared.registry().is_known(&job.id) {
                    return answer.map(|()| job);
                }
                order = *unused;
            }
        }
    };
    let admission = reserved.admit();
    let admission = match admission {
        // Another process may have used the key.
        Some(admission) if reserved.has_key() => match admission.await {
            Ok(Some(known)) => return known_by_key(shared, reserved, known).await,
            admitted => Some(ready(admitted).boxed()),
        },
        admission => admission,
    };
    let job = start_in_task(shared, reserved, admission, deadline).await?;
    if let Some(storing) = &shared.storing {
        storing.touch(&job.id);
    }
    Ok(job)
}

/// The job an earlier or other process started with this key.
async fn known_by_key(
    shared: &Arc<Shared>,
    reserved: Reserved,
    known: Record,
) -> Result<Arc<Job>, SpawnError> {
    let fingerprint = reserved.record.as_ref().map(|record| record.fingerprint.clone());
    let spec = reserved.job.spec.clone();
    reserved.withdraw();
    if fingerprint.as_ref() != Some(&known.fingerprint) {
        return Err(SpawnError::KeyReused);
    }
    finish_start(shared, spec, &known).await?;
    match lookup(shared, &Scope::Of(known.caller.clone()), &known.id).await {
        Lookup::Found(job) => Ok(job),
        Lookup::Expired(tombstone) => Err(SpawnError::Expired(tombstone)),
        Lookup::Unknown => Err(SpawnError::KeyReused),
    }
}

/// Repeats the start of a durable job whose process was killed before it recorded that the job
/// runs. The host starts it at most once.
async fn finish_start(
    shared: &Arc<Shared>,
    spec: JobSpec,
    known: &Record,
) -> Result<(), SpawnError> {
    let is_open = spec.durable && known.outcome.is_none() && !known.is_running;
    if !is_open
        || shared
            .storing
            .as_ref()
            .is_none_or(|storing: &Arc<Storing>| storing.store.owner(&known.owner).is_some())
    {
        return Ok(());
    }
    let Record {
        id, mark, caller, ..
    } = known.clone();
    let log = Log::new(shared.limits.ring(spec.pace));
    start_on_host(
        shared,
        &Job::begun(Identity { id, mark, caller }, spec, log),
    )
    .await
}

/// Starts a job in a task of its own, so that every command that was sent is recorded even if the
/// caller goes away.
async fn start_in_task(
    shared: &Arc<Shared>,
    reserved: Reserved,
    admission: Option<Admission>,
    deadline: Instant,
) -> Result<Arc<Job>, SpawnError> {
    let job = Arc::clone(&reserved.job);
    let cancel = reserved.abandoned.clone().drop_guard();
    let (sender, mut begun) = oneshot::channel();
    let starting = start(Arc::clone(shared), reserved, admission);
    // Fails only if the caller has gone away.
    shared.leave(async move { drop(sender.send(starting.await)) });
    if let Ok(begun) = timeout_at(deadline, &mut begun).await {
        begun.unwrap_or(Err(SpawnError::ShuttingDown))?;
    } else if shared.registry().tell(&job.id) {
        cancel.disarm();
        return Ok(job);
    } else {
        // The start has just failed.
        begun.await.unwrap_or(Err(SpawnError::ShuttingDown))?;
    }
    started(&job, deadline).await.map(|()| job)
}

/// Waits until the server has reported that it runs the job, or the deadline.
async fn started(job: &Job, deadline: Instant) -> Result<(), SpawnError> {
    let patience = deadline.saturating_duration_since(Instant::now()).min(EXEC_TIMEOUT);
    let status = job.wait_for(patience, |log| *log.phase() != Phase::Starting).await;
    match status.phase {
        Phase::Ended(Outcome::Refused) => {
            tracing::info!(host = job.spec.host, "exec refused");
            Err(SpawnError::ExecRefused(job.spec.host.clone()))
        }
        Phase::Starting | Phase::Running | Phase::Ended(_) => Ok(()),
    }
}

enum Reserve {
    /// The key was used before, so the order is not needed.
    Again(Arc<Job>, Box<Order>),
    New(Box<Reserved>),
}

/// A slot in the registry for a job that has not started. Dropping it removes the job.
struct Reserved {
    shared: Arc<Shared>,
    job: Arc<Job>,
    /// Cancels the start.
    abandoned: CancellationToken,
    /// Error to record if this is dropped. `None` once the job has started.
    unstarted: Option<String>,
    /// The record to store, if the job is to be stored.
    record: Option<Record>,
}

impl Reserved {
    /// Starts to register the job in the store.
    fn admit(&self) -> Option<Admission> {
        Some(self.shared.storing.as_ref()?.admit(self.record.as_ref()?))
    }

    fn has_key(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.key.is_some())
    }

    /// Removes a job that was never registered in the store.
    fn withdraw(mut self) {
        self.record = None;
    }
}

fn reserve(shared: &Arc<Shared>, order: Order) -> Result<Reserve, SpawnError> {
    if shared.stopping.is_cancelled() {
        return Err(SpawnError::ShuttingDown);
    }
    if let (true, Some(why)) = (order.spec.durable, &shared.unstored) {
        return Err(SpawnError::Unstored(why.clone()));
    }
    let mut registry = shared.registry();
    if let Some(job) = registry.by_key(&order)? {
        return Ok(Reserve::Again(job, Box::new(order)));
    }
    registry.check_room(&order.spec.host, &shared.limits)?;
    let ring = shared.limits.ring(order.spec.pace);
    // The fleet's log has the same lines, and the store has all of them.
    let is_member = order.spec.member_of.is_some() && shared.storing.is_some();
    let ring = if is_member {
        Limits::of_member(ring)
    } else {
        ring
    };
    let job = Arc::new(Job::new(order.caller, order.spec, ring));
    job.note_trouble(shared.unstored.clone());
    let record = shared.storing.as_ref().map(|_| {
        let key = order.key.as_ref().map(|(_, key)| key.as_str());
        Record::new(&job, key, job.spec.fingerprint(&registry.secret))
    });
    let abandoned = registry.insert(Arc::clone(&job), order.key);
    let unstarted = Some(chain(&SpawnError::ShuttingDown));
    Ok(Reserve::New(Box::new(Reserved {
        shared: Arc::clone(shared),
        job,
        abandoned,
        unstarted,
        record,
    })))
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(why) = self.unstarted.take() {
            // First, so that a call waiting for the same key finds it free.
            self.shared.registry().fail(&self.job.id);
            self.job.end(Outcome::NotStarted(why));
            if let Some((storing, record)) = self.shared.storing.as_ref().zip(self.record.take()) {
                storing.settle(
                    &self.job,
                    record,
                    self.shared.registry().is_known(&self.job.id),
                );
            }
        }
    }
}

/// Sends a job's command, then leaves the job to a recording task. Sends nothing if the start was
/// cancelled.
async fn start(
    shared: Arc<Shared>,
    mut reserved: Reserved,
    admission: Option<Admission>,
) -> Result<(), SpawnError> {
    if reserved.job.spec.durable || reserved.job.fleet.is_some() {
        return start_admitted(shared, reserved, admission).await;
    }
    match send_command(&shared, &reserved.job, &reserved.abandoned).await {
        Ok(sent) => {
            reserved.unstarted = None;
            let job = &reserved.job;
            let record = reserved.record.take();
            if let Some((storing, record)) = shared.storing.as_ref().zip(record) {
                storing.keep(job, record, sent.lease.connection().machine());
            }
            leave_recording(&shared, job, sent);
            if let Some(admission) = admission {
                match admission.await {
                    Ok(_) => shared.registry().note_stored(&job.id),
                    Err(error) => job.note_trouble(Some(error.to_string())),
                }
            }
            Ok(())
        }
        Err(error) => {
            reserved.unstarted = Some(chain(&error));
            Err(error)
        }
    }
}

/// Starts a durable job or a fleet. Its record comes first, so that another process can find the
/// job if this one is killed.
async fn start_admitted(
    shared: Arc<Shared>,
    mut reserved: Reserved,
    admission: Option<Admission>,
) -> Result<(), SpawnError> {
    let job = Arc::clone(&reserved.job);
    if let Some(admission) = admission {
        match admission.await {
            Ok(_) => shared.registry().note_stored(&job.id),
            // The job would outlive the only process that knows it.
            Err(error) if job.spec.durable => {
                reserved.unstarted = Some(error.to_string());
                return Err(SpawnError::Unstored(error.to_string()));
            }
            Err(error) => job.note_trouble(Some(error.to_string())),
        }
    }
    if job.fleet.is_some() {
        reserved.unstarted = None;
        if let Some((storing, record)) = shared.storing.as_ref().zip(reserved.record.take()) {
            storing.keep(&job, record, None);
        }
        // Fails only if the runner has shut down.
        return shared.fleets.send((job, false)).await.map_err(|_| SpawnError::ShuttingDown);
    }
    let started = tokio::select! {
        started = start_durable(&shared, &job, reserved.record.clone()) => started,
        () = reserved.abandoned.cancelled() => Err(SpawnError::Abandoned),
        () = shared.stopping.cancelled() => Err(SpawnError::ShuttingDown),
    };
    match &started {
        Ok(()) => (reserved.unstarted, reserved.record) = (None, None),
        Err(error) => reserved.unstarted = Some(chain(error)),
    }
    started
}

/// A command that was sent to the server.
struct Sent {
    lease: Lease<Arc<Link>>,
    plan: ExecPlan,
    reader: ChannelReader,
    writer: ChannelWriter,
    /// Events that were read before recording began, oldest first.
    ahead: VecDeque<ChannelEvent>,
}

/// Result of sending a command.
enum Tried {
    /// The server runs it.
    Sent(Box<Sent>),
    /// The server had closed the channel before it received the command.
    ChannelLost,
    /// The login shell is not the expected one and refused the command.
    OtherShell(Lease<Arc<Link>>),
}

async fn send_command(
    shared: &Shared,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<Sent, SpawnError> {
    let mut tries = Tries::new();
    loop {
        let open = tokio::select! {
            () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
            open = tries.open(shared, job) => open?,
        };
        match exec(open, job, abandoned).await? {
            Tried::Sent(sent) => return Ok(*sent),
            Tried::ChannelLost => tries.lost(),
            // Now the shell is known, and the next attempt fits it.
            Tried::OtherShell(lease) => {
                let asked = tokio::select! {
                    () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
                    () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
                    asked = lease.connection().ask_shell() => asked,
                };
                if asked.is_err() {
                    tries.lost();
                }
            }
        }
    }
}

async fn exec(
    OpenChannel { lease, opened }: OpenChannel,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<Tried, SpawnError> {
    let mut channel = opened.channel;
    let plan = match prepare(&mut channel, job, lease.connection()).await {
        Ok(plan) if !abandoned.is_cancelled() => plan,
        unwanted => {
            // A lost connection needs no closing.
            channel.close().await.ok();
            return Err(unwanted.err().unwrap_or(SpawnError::Abandoned));
        }
    };
    let (mut reader, writer) = channel
        .exec(&plan.command)
        .await
        .map_err(|error| SpawnError::channel(job, error))?;
    let mut ahead = VecDeque::new();
    if plan.expects_greeting {
        let mut first = FirstEvents::new(&mut reader, &job.mark);
        let words = first.read(&writer, abandoned).await;
        ahead = first.events;
        match words {
            FirstWords::Greeted(machine) => lease.connection().note_greeting(machine),
            FirstWords::NoShell => lease.connection().note_no_shell(),
            FirstWords::Lost => {}
            FirstWords::NotRun | FirstWords::GivenUp if abandoned.is_cancelled() => {
                return Err(SpawnError::Abandoned);
            }
            FirstWords::NotRun if opened.was_spare && ahead == [ChannelEvent::Close] => {
                return Ok(Tried::ChannelLost);
            }
            FirstWords::NotRun => {
                lease.connection().note_refusal();
                return Ok(Tried::OtherShell(lease));
            }
            FirstWords::GivenUp => return Ok(Tried::OtherShell(lease)),
        }
    } else if opened.was_spare {
        let first = timeout(EXEC_TIMEOUT, reader.next()).await.ok().flatten();
        if first == Some(ChannelEvent::Close) {
            return Ok(Tried::ChannelLost);
        }
        ahead.extend(first);
    }
    Ok(Tried::Sent(Box::new(Sent {
        lease,
        plan,
        reader,
        writer,
        ahead,
    })))
}

/// Prepares a channel for the command.
async fn prepare(channel: &mut Channel, job: &Job, link: &Link) -> Result<ExecPlan, SpawnError> {
    let plan = plan(job, link).await?;
    if let Some(terminal) = &job.spec.terminal {
        let asked = channel.request_pty(&terminal.term, terminal.size()).await;
        asked.map_err(|error| SpawnError::channel(job, error))?;
    }
    Ok(plan)
}

async fn plan(job: &Job, link: &Link) -> Result<ExecPlan, SpawnError> {
    if let Some(shell) = link.known_shell() {
        return Ok(ExecPlan::new(&job.spec, shell, job.mark.clone())?);
    }
    match ExecPlan::untried(&job.spec, link.likely_shell(), job.mark.clone()) {
        // The plan for a known shell is shorter and may fit.
        Err(PlanError::TooLong(_)) => {
            let shell = link.ask_shell().await.map_err(|error| SpawnError::channel(job, error))?;
            Ok(ExecPlan::new(&job.spec, shell, job.mark.clone())?)
        }
        plan => Ok(plan?),
    }
}

/// Starts the connection's control shell in the background once a job has run for a while: it may
/// be signalled or prompt for input. A short job costs one login shell, as with ssh.
async fn start_control_shell(job: Arc<Job>, link: Arc<Link>) {
    let has_ended = job.wait_for(LASTING, |log| matches!(log.phase(), Phase::Ended(_))).await;
    if !matches!(has_ended.phase, Phase::Ended(_)) {
        link.start_control_shell().await;
    }
}

/// From here on the job belongs to the runner and outlives the call.
fn leave_recording(shared: &Arc<Shared>, job: &Arc<Job>, sent: Sent) {
    let Sent {
        lease,
        plan,
        reader,
        writer,
        ahead,
    } = sent;
    let link = Arc::clone(lease.connection());
    link.job_begins();
    let is_shared = job.spec.pace == Pace::Free;
    let meter = Meter {
        traffic: link.traffic.clone(),
        growth: Arc::clone(&shared.growth),
        host: HostRef::of(job),
        became_heavy: is_shared.then(|| shared.became_heavy.clone()),
        unseen: shared.limits.unseen_growth(),
    };
    let prelude = Announcements::new(&job.mark, plan.announcements);
    let prelude = if plan.repeats_noise {
        prelude.without_noise()
    } else {
        prelude
    };
    let recorder = Recorder::new(prelude, shared.limits.drain());
    let recording = Recording::new(
        Attached {
            reader,
            ahead,
            meter,
        },
        Arc::clone(job),
        recorder,
    );
    let controls = Arc::new(AttachedControls(writer));
    let stdin = Arc::new(Stdin::new(
        controls,
        Arc::clone(job),
        recording.announced(),
        plan.stdin_header,
    ));
    shared.registry().start(&job.id, Arc::clone(&stdin), &link);
    if is_shared {
        shared.leave(start_control_shell(Arc::clone(job), Arc::clone(&link)));
        shared.leave(async move { link.refill().await });
    }
    shared.leave(record(Arc::clone(shared), recording, stdin, lease));
}
