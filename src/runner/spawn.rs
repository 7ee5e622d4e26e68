use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::attend::attend;
use super::link::{Directory, Link, Linker, Opened, ask};
use super::registry::Registry;
use super::stdin::Stdin;
use super::sweep::{connect_ahead, sweep};
use super::traffic::{Growth, Metered};
use super::{Limits, Lookup, Reader, SpawnError, WriteError, chain};
use crate::job::{
    ExecPlan, Job, JobId, JobSpec, Nonce, Outcome, Pace, Phase, Prelude, Reads, reading_script,
};
use crate::ssh::{
    ChannelError, ChannelEvent, ChannelReader, ConnectError, Connector, Lease, Pool, PoolError, Secrets,
    Usage,
};

/// Runs jobs. Dropping it without [`shutdown`](Self::shutdown) stops its tasks and leaves remote processes alone.
pub struct Runner<D: Directory> {
    pub(super) shared: Arc<Shared<D>>,
    pub(super) tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What the runner's tasks work on.
pub(super) struct Shared<D: Directory> {
    pub(super) pool: Pool<Linker<D>>,
    pub(super) limits: Limits,
    registry: Mutex<Registry>,
    pub(super) stopping: CancellationToken,
    pub(super) growth: Arc<Growth>,
    became_heavy: mpsc::Sender<String>,
}

/// How long the server may take to say whether it runs the command.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a host may take to say whether a job reads its stdin.
const READING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a pooled connection may take to open a channel before another one is tried.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a channel is tried for: a pooled connection may have died unnoticed.
const OPEN_ATTEMPTS: usize = 4;
/// A connection that refuses its first channel is asked again after these.
const FIRST_CHANNEL_PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];
/// How many hosts may wait for a connection to be made ahead.
const HEAVY_HOSTS: usize = 16;
/// How often the server may refuse one, on this connection and others.
const MOST_REFUSALS: usize = 64;

impl<D: Directory> Shared<D> {
    /// The registry. A panic elsewhere leaves it whole, since each change is a single call.
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that the server was asked to run.
struct Started {
    reader: ChannelReader,
    /// An event that was read ahead.
    first: Option<ChannelEvent>,
    stdin: Stdin,
    plan: ExecPlan,
    lease: Lease<Arc<Link>>,
}

impl<D: Directory> Runner<D> {
    /// A runner without jobs, which finds hosts through `directory` and whose logins have `secrets`.
    pub fn new(directory: D, limits: Limits, secrets: Secrets) -> Self {
        let (became_heavy, heavy) = mpsc::channel(HEAVY_HOSTS);
        let shared = Arc::new(Shared {
            pool: Pool::new(Linker { directory, connector: Connector::asking(secrets) }, limits.pool()),
            limits,
            registry: Mutex::default(),
            stopping: CancellationToken::new(),
            growth: Arc::default(),
            became_heavy,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(sweep(Arc::clone(&shared)));
        tasks.spawn(connect_ahead(Arc::clone(&shared), heavy));
        Self { shared, tasks: Arc::new(Mutex::new(tasks)) }
    }

    /// Starts a job and returns once the server runs it, or when `patience` runs out: then the job is still starting, and will
    /// end as not started if it can't be.
    ///
    /// With a `key` that was used before, returns the job it was used for and starts nothing. Cancelling before the
    /// command was sent starts nothing; afterwards the job goes on and is listed.
    pub async fn spawn(
        &self,
        spec: JobSpec,
        key: Option<String>,
        patience: Duration,
    ) -> Result<Arc<Job>, SpawnError> {
        ExecPlan::check(&spec)?;
        let deadline = Instant::now() + patience;
        let (job, reservation) = loop {
            match self.reserve(spec.clone(), key.clone())? {
                Reserved::New(job, reservation) => break (job, reservation),
                Reserved::Again(job) => {
                    let answer = started(Arc::clone(&job), deadline).await;
                    // The first call may have failed before its job began; then it is our turn.
                    if !self.is_forgotten(&job) {
                        return answer;
                    }
                }
            }
        };
        // In a task of its own, so that a command that was sent always has somebody who attends to it.
        let abandoned = reservation.abandoned.clone();
        let beginning =
            begin(Arc::clone(&self.shared), Arc::clone(&self.tasks), Arc::clone(&job), reservation);
        let cancel = abandoned.drop_guard();
        let (sender, mut begun) = oneshot::channel();
        // Whoever asked may have gone; then nobody is told.
        let task = async move { drop(sender.send(beginning.await)) };
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
        if let Ok(begun) = timeout_at(deadline, &mut begun).await {
            begun.unwrap_or(Err(SpawnError::ShuttingDown))?;
        } else if self.shared.registry().tell(&job.id) {
            cancel.disarm();
            return Ok(job);
        } else {
            // It has just failed.
            begun.await.unwrap_or(Err(SpawnError::ShuttingDown))?;
        }
        let job = started(job, deadline).await;
        if let Err(SpawnError::ExecRefused(host)) = &job {
            tracing::info!(host, "exec refused");
        }
        job
    }

    fn is_forgotten(&self, job: &Job) -> bool {
        matches!(self.lookup(&job.id), Lookup::Unknown)
    }

    fn reserve(&self, spec: JobSpec, key: Option<String>) -> Result<Reserved<D>, SpawnError> {
        if self.shared.stopping.is_cancelled() {
            return Err(SpawnError::ShuttingDown);
        }
        let mut registry = self.shared.registry();
        if let Some(job) = registry.by_key(key.as_deref(), &spec)? {
            return Ok(Reserved::Again(job));
        }
        registry.check_room(&spec.host, &self.shared.limits)?;
        let id = JobId::new(&spec.host);
        let ring = self.shared.limits.ring(spec.pace);
        let job = Arc::new(Job::new(id, spec, Nonce::new(), ring));
        let abandoned = registry.insert(Arc::clone(&job), key);
        let shared = Arc::clone(&self.shared);
        Ok(Reserved::New(Arc::clone(&job), Reservation { shared, job: Some(job), abandoned }))
    }

    /// What is known under a job's name.
    pub fn lookup(&self, id: &JobId) -> Lookup {
        self.shared.registry().lookup(id)
    }

    /// Every job that is kept, the newest first.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        let mut jobs: Vec<_> = self.shared.registry().all().cloned().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse((job.status().started_at, job.id.clone())));
        jobs
    }

    /// Writes to a job's stdin within `patience`.
    pub async fn write(&self, job: &Job, data: &[u8], patience: Duration) -> Result<(), WriteError> {
        self.stdin(job)?.write(data, patience).await
    }

    /// Waits until a job has started, or can't be, for as long as `patience`.
    pub async fn started(&self, job: &Job, patience: Duration) {
        job.wait_for(patience, |log| *log.phase() != Phase::Starting).await;
    }

    /// Ends a job's stdin within `patience`.
    pub async fn close_stdin(&self, job: &Job, patience: Duration) -> Result<(), WriteError> {
        self.stdin(job)?.close(patience).await
    }

    /// Whether a running job's stdin has ended.
    pub fn is_stdin_closed(&self, job: &Job) -> Result<bool, WriteError> {
        Ok(self.stdin(job)?.is_closed())
    }

    /// Tells a running job's terminal its new size in columns and rows.
    pub async fn resize(&self, job: &Job, size: (u32, u32)) -> Result<(), WriteError> {
        if job.spec.terminal.is_none() {
            return Err(WriteError::NoTerminal);
        }
        Ok(self.stdin(job)?.channel().resize(size).await?)
    }

    /// Whether a job waits for its stdin. It takes a look at the host, over the job's own connection; none when the host can't
    /// tell, or not within two seconds.
    pub async fn reads(&self, job: &Job) -> Option<Reads> {
        let place = self.shared.registry().place(&job.id)?;
        let (group, link) = job.process_group().zip(place.link.upgrade()).filter(|_| !job.is_held())?;
        let script = reading_script(&group, link.shell);
        let asked = async { ask(link.open().await?.channel, &script, READING_TIMEOUT).await };
        Reads::parse(&timeout(READING_TIMEOUT, asked).await.ok()?.ok()?)
    }

    fn stdin(&self, job: &Job) -> Result<Arc<Stdin>, WriteError> {
        let running = job.read_log(|log| log.outcome().is_none());
        let stdin = self.shared.registry().stdin(&job.id).filter(|_| running);
        stdin.ok_or(if running { WriteError::Starting } else { WriteError::JobEnded })
    }

    /// Forgets a finished job; its outcome is still told by `expired_job`.
    pub fn forget(&self, job: &Job) {
        self.shared.registry().bury(&job.id);
    }

    /// What the pool holds for a host.
    pub fn usage(&self, host: &str) -> Usage {
        self.shared.pool.usage(host)
    }

    /// A connection to `host`, made if there is none, to look at.
    pub async fn probe(&self, host: &str) -> Result<Lease<Arc<Link>>, SpawnError> {
        match self.live(host) {
            Some(lease) if lease.connection().answers().await => Ok(lease),
            _ => self.shared.pool.lease(host).await.map_err(pool_error),
        }
    }

    /// A live connection to `host`, if there is one.
    pub fn live(&self, host: &str) -> Option<Lease<Arc<Link>>> {
        self.shared.pool.borrow(host, |_| true)
    }
}

/// Sends a job's command and leaves it to the tasks. Nothing is sent once the start was abandoned.
async fn begin<D: Directory>(
    shared: Arc<Shared<D>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
    job: Arc<Job>,
    reservation: Reservation<D>,
) -> Result<(), SpawnError> {
    match start(&shared, &job, &reservation.abandoned).await {
        Ok(started) => {
            leave_to_tasks(shared, &tasks, &job, started);
            reservation.keep();
            Ok(())
        }
        Err(error) => {
            reservation.fail(chain(&error));
            Err(error)
        }
    }
}

/// A place for a job's channel: on a connection that answers, or one to itself.
async fn lease<D: Directory>(shared: &Shared<D>, job: &Job) -> Result<Lease<Arc<Link>>, SpawnError> {
    let host = &job.spec.host;
    match job.spec.pace {
        Pace::Free => shared.pool.lease(host).await.map_err(pool_error),
        Pace::OfFollower => shared.pool.lease_alone(host).await.map_err(pool_error),
    }
}

async fn start<D: Directory>(
    shared: &Shared<D>,
    job: &Arc<Job>,
    abandoned: &CancellationToken,
) -> Result<Started, SpawnError> {
    let host = &job.spec.host;
    let failed = |source| SpawnError::Channel { host: host.clone(), source };
    let mut last = ChannelError::ConnectionLost;
    let (mut attempts, mut refusals) = (0, 0);
    while attempts < OPEN_ATTEMPTS && refusals < MOST_REFUSALS {
        let opening = async {
            let lease = lease(shared, job).await?;
            if !lease.connection().answers().await {
                // The others that have been silent since are not asked one after the other.
                shared.pool.each(host, |link| {
                    if link.is_silent() {
                        link.suspect();
                    }
                });
                return Ok((lease, Err(ChannelError::ConnectionLost)));
            }
            let mut opened = match timeout(OPEN_TIMEOUT, lease.connection().open()).await {
                Ok(opened) => opened,
                Err(_) => {
                    lease.connection().suspect();
                    Err(ChannelError::ConnectionLost)
                }
            };
            // A server may not have cleaned up yet after what was asked of it when the connection was made.
            for pause in FIRST_CHANNEL_PAUSES {
                if !matches!(opened, Err(ChannelError::OpenRefused)) || !lease.is_only() {
                    break;
                }
                sleep(pause).await;
                opened = lease.connection().open().await;
            }
            Ok::<_, SpawnError>((lease, opened))
        };
        let (lease, opened) = tokio::select! {
            () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
            opening = opening => opening?,
        };
        let Opened { mut channel, was_spare } = match opened {
            Ok(opened) => opened,
            Err(error @ ChannelError::TimedOut(_)) => return Err(failed(error)),
            Err(error @ ChannelError::OpenRefused) => {
                // Each refusal makes the pool wiser, so that this comes to another connection. One that refuses its very first
                // channel is not worth many logins.
                attempts += if lease.refused() { OPEN_ATTEMPTS / 2 } else { 0 };
                refusals += 1;
                last = error;
                continue;
            }
            Err(error @ (ChannelError::ConnectionLost | ChannelError::PtyRefused)) => {
                attempts += 1;
                last = error;
                continue;
            }
        };
        let plan = match ExecPlan::new(&job.spec, lease.connection().shell, job.mark.clone()) {
            Ok(plan) => plan,
            Err(error) => {
                // A connection that is lost needs no closing.
                channel.close().await.ok();
                return Err(error.into());
            }
        };
        if let Some(terminal) = &job.spec.terminal {
            let size = (terminal.cols, terminal.rows);
            if let Err(error) = channel.request_pty(&terminal.term, size).await {
                // A connection that is lost needs no closing.
                channel.close().await.ok();
                return Err(failed(error));
            }
        }
        if abandoned.is_cancelled() {
            channel.close().await.ok();
            return Err(SpawnError::Abandoned);
        }
        let (mut reader, writer) = channel.exec(&plan.command).await.map_err(failed)?;
        let mut first = None;
        if was_spare {
            first = timeout(EXEC_TIMEOUT, reader.next()).await.ok().flatten();
            if first == Some(ChannelEvent::Close) {
                // The server had closed it before it could see the command.
                attempts += 1;
                last = ChannelError::ConnectionLost;
                continue;
            }
        }
        return Ok(Started { reader, first, stdin: Stdin::new(writer, Arc::clone(job)), plan, lease });
    }
    Err(failed(last))
}

/// From here on the job is the runner's, whoever asked for it.
fn leave_to_tasks<D: Directory>(
    shared: Arc<Shared<D>>,
    tasks: &Mutex<JoinSet<()>>,
    job: &Arc<Job>,
    started: Started,
) {
    let Started { reader, first, stdin, plan, lease } = started;
    let link = Arc::clone(lease.connection());
    link.job_begins();
    let stdin = Arc::new(stdin);
    shared.registry().start(&job.id, Arc::clone(&stdin), &link);
    let prelude = Prelude::new(&job.mark, plan.announcements);
    let prelude = if plan.repeats_noise { prelude.without_noise() } else { prelude };
    let (growth, unseen) = (Arc::clone(&shared.growth), shared.limits.unseen_growth());
    let is_shared = job.spec.pace == Pace::Free;
    let (host, became_heavy) = (job.spec.host.clone(), is_shared.then(|| shared.became_heavy.clone()));
    let traffic = link.traffic.clone();
    let reader = Metered { first, source: reader, traffic, growth, host, became_heavy, unseen };
    let reader = Reader::new(reader, Arc::clone(job), prelude, shared.limits.drain());
    let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
    while tasks.try_join_next().is_some() {}
    if job.spec.pace == Pace::Free {
        tasks.spawn(async move { link.refill().await });
    }
    tasks.spawn(attend(shared, Arc::clone(job), reader, stdin, plan.stdin_header, lease));
}

pub(super) fn pool_error(error: PoolError<ConnectError>) -> SpawnError {
    match error {
        PoolError::Connect(error) => SpawnError::Connect(error),
        full @ PoolError::Full { .. } => SpawnError::ConnectionsFull(full.to_string()),
    }
}

/// The job, once the server has said that it runs it, or time is up.
async fn started(job: Arc<Job>, deadline: Instant) -> Result<Arc<Job>, SpawnError> {
    let patience = deadline.saturating_duration_since(Instant::now()).min(EXEC_TIMEOUT);
    let status = job.wait_for(patience, |log| *log.phase() != Phase::Starting).await;
    match status.phase {
        Phase::Ended(Outcome::Refused) => Err(SpawnError::ExecRefused(job.spec.host.clone())),
        Phase::Starting | Phase::Running | Phase::Ended(_) => Ok(job),
    }
}

enum Reserved<D: Directory> {
    /// The key was used before.
    Again(Arc<Job>),
    New(Arc<Job>, Reservation<D>),
}

/// A place in the registry for a job that has not started. Dropping it takes the job away.
struct Reservation<D: Directory> {
    shared: Arc<Shared<D>>,
    job: Option<Arc<Job>>,
    /// Ends the start.
    abandoned: CancellationToken,
}

impl<D: Directory> Reservation<D> {
    fn keep(mut self) {
        self.job = None;
    }

    fn fail(mut self, why: String) {
        self.end(why);
    }

    fn end(&mut self, why: String) {
        if let Some(job) = self.job.take() {
            self.shared.registry().fail(&job.id);
            // Whoever waits for the same key is told, and finds it free.
            job.write_log(|log| log.end(Outcome::NotStarted(why)));
        }
    }
}

impl<D: Directory> Drop for Reservation<D> {
    fn drop(&mut self) {
        self.end("the program is shutting down".to_owned());
    }
}
