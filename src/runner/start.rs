use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::ready;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::attached::{Attached, AttachedControls};
use super::durable::{start_durable, start_on_host};
use super::find::lookup;
use super::fleet::start_fleet;
use super::meter::Meter;
use super::open::{OpenChannel, Tries};
use super::record::{Recording, record};
use super::shared::Shared;
use super::stdin::Stdin;
use super::storing::{Admission, Storing};
use super::{Limits, Lookup, Order, Runner, SpawnError, chain};
use crate::hosts::{HostRef, Lease, Link};
use crate::job::{
    Announcements, ExecPlan, Identity, Job, JobSpec, Log, LoginShell, Outcome, Pace, Phase, Recorder, Scope,
};
use crate::ssh::{Channel, ChannelEvent, ChannelReader, ChannelWriter};
use crate::store::Record;

/// Time limit for the server to say whether it runs the command.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);

impl Runner {
    /// Starts a job and returns once the server runs it, or when `patience` runs out: then the job is still starting, and will
    /// end as not started if it can't be.
    ///
    /// With a key that was used before, returns the job it was used for and starts nothing. Cancelling before the
    /// command was sent starts nothing; afterwards the job goes on and is listed.
    pub async fn spawn(&self, order: Order, patience: Duration) -> Result<Arc<Job>, SpawnError> {
        Box::pin(spawn(&self.shared, order, patience)).await
    }
}

/// Starts a job, as [`Runner::spawn`] does.
pub(super) async fn spawn(
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
                // The first call may have failed before its job began; then it is our turn.
                if shared.registry().is_known(&job.id) {
                    return answer.map(|()| job);
                }
                order = *unused;
            }
        }
    };
    let admission = reserved.admit();
    let admission = match admission {
        // Other processes may have used the key.
        Some(admission) if reserved.has_key() => match admission.await {
            Ok(Some(known)) => return known_by_key(shared, reserved, known).await,
            admitted => Some(ready(admitted).boxed()),
        },
        admission => admission,
    };
    let job = start_in_task(shared, (reserved, admission), deadline).await?;
    if let Some(storing) = &shared.storing {
        storing.touch(&job.id);
    }
    Ok(job)
}

/// The job that the key was used for before, by another process or in another life.
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

/// Repeats the start of a durable job whose process was killed before it could record that the job runs. The host starts it at most
/// once.
async fn finish_start(shared: &Arc<Shared>, spec: JobSpec, known: &Record) -> Result<(), SpawnError> {
    let has_owner = |storing: &Arc<Storing>| storing.store.owner(&known.owner).is_some();
    let is_open = spec.durable && known.outcome.is_none() && !known.is_running;
    if !is_open || shared.storing.as_ref().is_none_or(has_owner) {
        return Ok(());
    }
    let Record { id, mark, caller, .. } = known.clone();
    let log = Log::new(shared.limits.ring(spec.pace));
    start_on_host(shared, &Job::begun(Identity { id, mark, caller }, spec, log)).await
}

/// Starts a job in a task of its own, so that a command that was sent always has somebody who records it.
async fn start_in_task(
    shared: &Arc<Shared>,
    (reserved, admission): (Reserved, Option<Admission>),
    deadline: Instant,
) -> Result<Arc<Job>, SpawnError> {
    let job = Arc::clone(&reserved.job);
    let cancel = reserved.abandoned.clone().drop_guard();
    let (sender, mut begun) = oneshot::channel();
    let starting = start(Arc::clone(shared), reserved, admission);
    // Whoever asked may have gone; then nobody is told.
    shared.leave(async move { drop(sender.send(starting.await)) });
    if let Ok(begun) = timeout_at(deadline, &mut begun).await {
        begun.unwrap_or(Err(SpawnError::ShuttingDown))?;
    } else if shared.registry().tell(&job.id) {
        cancel.disarm();
        return Ok(job);
    } else {
        // It has just failed.
        begun.await.unwrap_or(Err(SpawnError::ShuttingDown))?;
    }
    started(&job, deadline).await.map(|()| job)
}

/// Waits until the server has said that it runs the job, or time is up.
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
    /// The key was used before; the order is not needed.
    Again(Arc<Job>, Box<Order>),
    New(Box<Reserved>),
}

/// A place in the registry for a job that has not started. Dropping it takes the job away.
struct Reserved {
    shared: Arc<Shared>,
    job: Arc<Job>,
    /// Ends the start.
    abandoned: CancellationToken,
    /// Why the job ends with this; none once it has started.
    unstarted: Option<String>,
    /// What is to be stored of the job, if anything is.
    record: Option<Record>,
}

impl Reserved {
    /// Begins to take the job into the store.
    fn admit(&self) -> Option<Admission> {
        Some(self.shared.storing.as_ref()?.admit(self.record.as_ref()?))
    }

    fn has_key(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.key.is_some())
    }

    /// The job was never taken in.
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
    // The fleet's log has its lines, too, and the store has all of them.
    let is_member = order.spec.member_of.is_some() && shared.storing.is_some();
    let ring = if is_member { Limits::of_member(ring) } else { ring };
    let job = Arc::new(Job::new(order.caller, order.spec, ring));
    job.note_trouble(shared.unstored.clone());
    let record = shared.storing.as_ref().map(|_| {
        let key = order.key.as_ref().map(|(_, key)| key.as_str());
        Record::new(&job, key, job.spec.fingerprint(&registry.secret))
    });
    let abandoned = registry.insert(Arc::clone(&job), order.key);
    let unstarted = Some(chain(&SpawnError::ShuttingDown));
    Ok(Reserve::New(Box::new(Reserved { shared: Arc::clone(shared), job, abandoned, unstarted, record })))
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(why) = self.unstarted.take() {
            // First, so that whoever waits for the same key finds it free.
            self.shared.registry().fail(&self.job.id);
            self.job.end(Outcome::NotStarted(why));
            if let Some((storing, record)) = self.shared.storing.as_ref().zip(self.record.take()) {
                storing.settle(&self.job, record, self.shared.registry().is_known(&self.job.id));
            }
        }
    }
}

/// Sends a job's command and leaves the job to a task that records it. Nothing is sent once the start was abandoned.
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
            let (job, record) = (&reserved.job, reserved.record.take());
            if let Some((storing, record)) = shared.storing.as_ref().zip(record) {
                storing.keep(job, record, sent.lease.connection().machine.clone());
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

/// Starts a durable job, or a fleet. Its record comes first: whoever finds that can find the job, whatever becomes of us.
async fn start_admitted(
    shared: Arc<Shared>,
    mut reserved: Reserved,
    admission: Option<Admission>,
) -> Result<(), SpawnError> {
    let job = Arc::clone(&reserved.job);
    if let Some(admission) = admission {
        match admission.await {
            Ok(_) => shared.registry().note_stored(&job.id),
            Err(error) => job.note_trouble(Some(error.to_string())),
        }
    }
    if job.fleet.is_some() {
        start_fleet(&shared, &job, reserved.record.take());
        reserved.unstarted = None;
        return Ok(());
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

/// A command that the server was asked to run.
struct Sent {
    lease: Lease<Arc<Link>>,
    plan: ExecPlan,
    reader: ChannelReader,
    writer: ChannelWriter,
    /// An event that was read ahead.
    first: Option<ChannelEvent>,
}

async fn send_command(shared: &Shared, job: &Job, abandoned: &CancellationToken) -> Result<Sent, SpawnError> {
    let mut tries = Tries::new();
    loop {
        let open = tokio::select! {
            () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
            open = tries.open(shared, job) => open?,
        };
        if let Some(sent) = exec(open, job, abandoned).await? {
            return Ok(sent);
        }
        tries.lost();
    }
}

/// Sends the command; none when the server had closed the channel before it could see it.
async fn exec(
    OpenChannel { lease, opened }: OpenChannel,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<Option<Sent>, SpawnError> {
    let mut channel = opened.channel;
    let plan = match prepare(&mut channel, job, lease.connection().shell).await {
        Ok(plan) if !abandoned.is_cancelled() => plan,
        unwanted => {
            // A connection that is lost needs no closing.
            channel.close().await.ok();
            return Err(unwanted.err().unwrap_or(SpawnError::Abandoned));
        }
    };
    let failed = |error| SpawnError::channel(job, error);
    let (mut reader, writer) = channel.exec(&plan.command).await.map_err(failed)?;
    let mut first = None;
    if opened.was_spare {
        first = timeout(EXEC_TIMEOUT, reader.next()).await.ok().flatten();
        if first == Some(ChannelEvent::Close) {
            return Ok(None);
        }
    }
    Ok(Some(Sent { lease, plan, reader, writer, first }))
}

/// Makes a channel ready for the command.
async fn prepare(channel: &mut Channel, job: &Job, shell: LoginShell) -> Result<ExecPlan, SpawnError> {
    let plan = ExecPlan::new(&job.spec, shell, job.mark.clone())?;
    if let Some(terminal) = &job.spec.terminal {
        let size = (terminal.cols, terminal.rows);
        let asked = channel.request_pty(&terminal.term, size).await;
        asked.map_err(|error| SpawnError::channel(job, error))?;
    }
    Ok(plan)
}

/// From here on the job is the runner's, whoever asked for it.
fn leave_recording(shared: &Arc<Shared>, job: &Arc<Job>, sent: Sent) {
    let Sent { lease, plan, reader, writer, first } = sent;
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
    let prelude = if plan.repeats_noise { prelude.without_noise() } else { prelude };
    let recorder = Recorder::new(prelude, shared.limits.drain());
    let recording = Recording::new(Attached { reader, first, meter }, Arc::clone(job), recorder);
    let controls = Arc::new(AttachedControls(writer));
    let stdin = Arc::new(Stdin::new(controls, Arc::clone(job), recording.announced(), plan.stdin_header));
    shared.registry().start(&job.id, Arc::clone(&stdin), &link);
    if is_shared {
        shared.leave(async move { link.refill().await });
    }
    shared.leave(record(Arc::clone(shared), recording, stdin, lease));
}
