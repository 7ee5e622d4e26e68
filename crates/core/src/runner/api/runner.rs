//! The runner: constructed once per process, it owns all tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt;
use secrecy::ExposeSecret;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::sweep::{connect_ahead, sweep};
use crate::admission::{ForgetJob, Permit, ReadOutput, Start, WriteInput};
use crate::hosts::{HostRef, Hosts, Script};
use crate::keeping::{FLUSH_TO_END, Storing};
use crate::runner::durable::{SshSessions, ask, stdin_on_host};
use crate::runner::fleet::run_fleets;
use crate::runner::foreign::{adopt, balance, end_leftovers, handle_store_events, lookup};
use crate::runner::owner;
use crate::runner::owner::{OwnerCall, OwnerProcess, OwnerReply};
use crate::runner::record::finish;
use crate::runner::seen_job::{Permitted, SeenJob};
use crate::runner::start::{find_started, launch_queued, spawn};
use crate::runner::state::{
    Followers, ForeignJobs, JobStdin, Limits, Lookup, Observer, QueueRule, Registry, RunnerState,
    RunnerTasks, Screens, SecretReader, SpawnError, StartOrder, WriteError,
};
use sshjobs_job::spool;
use sshjobs_job::{
    AwaitsStdin, Job, JobId, JobScreen, LostWhy, Outcome, Scope, SecretFingerprint,
    awaits_stdin_script,
};
use sshjobs_output::TerminalSize;
use sshjobs_output::scrub::HiddenSecret;
use sshjobs_store::{Peers, SharedValue, Store, StoreError};

/// Runs jobs. Dropping it without [`shutdown`](Self::shutdown) stops its tasks and leaves remote
/// processes alone.
pub struct Runner {
    pub(crate) shared: Arc<RunnerState>,
    pub(crate) tasks: Arc<Mutex<JoinSet<()>>>,
}

/// Time limit for a host to report whether a job reads its stdin.
const STDIN_STATE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for deleting a durable job's files on its host.
const SPOOL_REMOVAL: Duration = Duration::from_secs(10);
/// Maximum hosts that wait for an additional connection.
const HEAVY_HOSTS: usize = 16;
/// Maximum fleets that wait to be started.
const FLEETS: usize = 64;
/// Maximum adopted jobs that wait to be launched.
const QUEUED: usize = 64;

/// Parts of the program that the runner calls.
pub struct Surroundings {
    /// Reads the secrets of jobs that this process takes over.
    pub secrets: Arc<dyn SecretReader>,
    /// Hears of the jobs that are recorded here.
    pub observer: Box<dyn Observer>,
}

/// How a job's stdin is reached.
enum StdinRoute {
    /// In this process.
    Here(Arc<JobStdin>),
    /// Through the process that owns the job.
    At(OwnerProcess),
}

impl Runner {
    /// A runner without jobs, which stores output in `store`. If `store` is an error, jobs run
    /// without being stored and report that. `queue_rules` are those of the queues, by name. Must be
    /// called within a tokio runtime.
    pub fn new(
        hosts: Arc<Hosts>,
        limits: Limits,
        store: Option<Result<Arc<dyn Store>, StoreError>>,
        surroundings: Surroundings,
        queue_rules: BTreeMap<String, QueueRule>,
    ) -> Self {
        let queues = SharedValue::new("queues", store.clone());
        let (storing, unstored) = match store.map(|store| start_storing(store, &limits)).transpose()
        {
            Ok(storing) => (storing, None),
            Err(why) => {
                tracing::warn!("output of jobs is not stored: {why}");
                (None, Some(why))
            }
        };
        // All processes use the store's key, so that each can compare the fingerprints that
        // the others stored.
        let secret = storing
            .as_ref()
            .map_or_else(|| rand::rng().random(), |storing| storing.store.secret());
        let (became_heavy, heavy) = mpsc::channel(HEAVY_HOSTS);
        let (fleets, to_run) = mpsc::channel(FLEETS);
        let (queued, to_launch) = mpsc::channel(QUEUED);
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let sessions = SshSessions {
            hosts: Arc::clone(&hosts),
            keep_stored: limits.keep_stored,
            tasks: RunnerTasks::of(&tasks),
        };
        let shared = Arc::new(RunnerState {
            hosts,
            limits,
            registry: Mutex::new(Registry::new(secret)),
            storing,
            unstored,
            foreign_jobs: ForeignJobs::default(),
            sessions: Box::new(sessions),
            followers: Followers::default(),
            screens: Screens::default(),
            adopts: limits.adopts_jobs,
            secrets: surroundings.secrets,
            observer: surroundings.observer,
            queues,
            queue_rules,
            stopping: CancellationToken::new(),
            growth: Arc::default(),
            ends: Default::default(),
            became_heavy,
            fleets,
            queued,
            tasks: RunnerTasks::of(&tasks),
        });
        shared.spawn_task(sweep(Arc::clone(&shared)));
        shared.spawn_task(connect_ahead(Arc::clone(&shared), heavy));
        shared.spawn_task(run_fleets(Arc::clone(&shared), to_run));
        shared.spawn_task(launch_queued(Arc::clone(&shared), to_launch));
        shared.spawn_task(adopt(Arc::clone(&shared)));
        shared.spawn_task(end_leftovers(Arc::clone(&shared)));
        shared.spawn_task(handle_store_events(Arc::clone(&shared)));
        shared.spawn_task(balance(Arc::clone(&shared)));
        shared.spawn_task(owner::listen(Arc::clone(&shared)));
        Self { shared, tasks }
    }

    /// Limits on jobs.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Starts a job. Returns once the server runs it or when `patience` has passed. In the second
    /// case the job is still starting; if it fails to start, its outcome says so.
    ///
    /// If the key was used before, returns that job and starts nothing. Cancelling before the
    /// command was sent starts nothing; afterwards the job continues and is listed.
    pub async fn spawn(
        &self,
        permit: Permit<Start>,
        order: StartOrder,
        patience: Duration,
    ) -> Result<SeenJob, SpawnError> {
        let order = StartOrder {
            id: permit.job().clone(),
            ..order
        };
        spawn(&self.shared, permit, order, patience).await.map(SeenJob::new)
    }

    /// Finds the job with the id of an order whose start is repeated, and starts nothing. Waits until the
    /// earlier start has finished, at most for `patience`. `None` if there is no such job.
    ///
    /// # Errors
    /// The earlier start has failed just now, the job is no longer kept, or the store can't be read.
    pub async fn find_started(
        &self,
        order: StartOrder,
        patience: Duration,
    ) -> Result<Option<SeenJob>, SpawnError> {
        let found = find_started(&self.shared, order, patience).await?;
        Ok(found.map(SeenJob::new))
    }

    /// Searches for a job id: among the jobs of this process, of others, and of earlier ones. A job
    /// out of scope is unknown.
    pub(crate) async fn lookup(&self, scope: &Scope, id: &JobId) -> Lookup {
        lookup(&self.shared, scope, id).await
    }

    /// Writes to a job's stdin. Waits at most `patience`.
    pub async fn write(
        &self,
        job: Permitted<'_, WriteInput>,
        data: &[u8],
        patience: Duration,
    ) -> Result<(), WriteError> {
        let job = job.job();
        match self.stdin(job)? {
            StdinRoute::Here(stdin) => stdin.write(data, patience).await,
            StdinRoute::At(owner) => owner.ask(OwnerCall::Write { patience }, data).await.map(drop),
        }
    }

    /// Fingerprint of a secret, which other processes with the same store compute alike.
    pub fn fingerprint_of(&self, secret: &HiddenSecret) -> SecretFingerprint {
        let key = self.shared.registry().secret;
        SecretFingerprint::of(secret, &key)
    }

    /// Hides a secret in output of a running job that arrives later. For a fleet: in that of each member
    /// that is written to. Not for durable jobs: a process that takes one over hides only the secrets in
    /// its record.
    pub async fn hide_secret(
        &self,
        job: Permitted<'_, WriteInput>,
        secret: &HiddenSecret,
    ) -> Result<(), WriteError> {
        let job = job.job();
        match self.stdin(job)? {
            StdinRoute::Here(_) => job.hide_secret(secret),
            StdinRoute::At(owner) => {
                let call = OwnerCall::Hide {
                    name: secret.name().to_owned(),
                };
                owner.ask(call, secret.value().expose_secret().as_bytes()).await?;
            }
        }
        Ok(())
    }

    /// Closes a job's stdin. Waits at most `patience`.
    pub async fn close_stdin(
        &self,
        job: Permitted<'_, WriteInput>,
        patience: Duration,
    ) -> Result<(), WriteError> {
        let job = job.job();
        match self.stdin(job)? {
            StdinRoute::Here(stdin) => stdin.close(patience).await,
            StdinRoute::At(owner) => {
                owner.ask(OwnerCall::CloseStdin { patience }, &[]).await.map(drop)
            }
        }
    }

    /// Whether a running job's stdin is closed.
    pub async fn is_stdin_closed(&self, job: &SeenJob) -> Result<bool, WriteError> {
        match self.stdin(&job.0)? {
            StdinRoute::Here(stdin) => Ok(stdin.is_closed()),
            StdinRoute::At(owner) => {
                let reply = owner.ask(OwnerCall::IsStdinClosed, &[]).await?;
                Ok(reply == OwnerReply::IsStdinClosed(true))
            }
        }
    }

    /// Sets the size of a running job's terminal, in columns and rows.
    pub async fn resize(
        &self,
        job: Permitted<'_, WriteInput>,
        size: TerminalSize,
    ) -> Result<(), WriteError> {
        let job = job.job();
        if job.spec.terminal.is_none() {
            return Err(WriteError::NoTerminal);
        }
        let TerminalSize { cols, rows } = size;
        let resize = OwnerCall::Resize { cols, rows };
        match self.stdin(job)? {
            StdinRoute::At(owner) => drop(owner.ask(resize, &[]).await?),
            StdinRoute::Here(stdin) => {
                // The owner of a durable job first, because it notes the size in the job's record.
                let is_done = match self.owner_of(job) {
                    Some(owner) => match owner.ask(resize, &[]).await {
                        Ok(_) => true,
                        Err(error) => {
                            tracing::debug!(job = %job.id, %error, "resized without its owner");
                            false
                        }
                    },
                    None => false,
                };
                if !is_done {
                    stdin.controls().resize(size).await?;
                }
            }
        }
        job.note_resize(size);
        Ok(())
    }

    /// The screen of a job's terminal, not yet drawn to the end of its output.
    pub fn screen(&self, job: Permitted<'_, ReadOutput>) -> Arc<AsyncMutex<JobScreen>> {
        self.shared.screens.of(&job)
    }

    fn stdin(&self, job: &Job) -> Result<StdinRoute, WriteError> {
        let is_over = job.is_over();
        if !is_over && let Some(owner) = self.owner_name(job) {
            // A durable job's input goes to its host directly, whichever process owns the job. A
            // fleet has no host: its owner passes the input on.
            let durable = self
                .shared
                .foreign_jobs
                .get(&job.id)
                .filter(|job| job.spec.durable && job.fleet.is_none());
            if let Some(job) = durable {
                return Ok(StdinRoute::Here(stdin_on_host(&self.shared, &job)));
            }
            return self.owner_of(job).map(StdinRoute::At).ok_or(WriteError::NotOwner(owner));
        }
        let mut stdin = self.shared.registry().stdin(&job.id);
        // A job that has ended keeps its stdin here until its recorder calls `finish`.
        if is_over {
            stdin = None;
        }
        // Without a stdin the job is still starting, or has ended since.
        let is_starting = job.read_log(|log| !log.phase().has_started());
        let is_on_one_host = job.spec.durable && job.spec.fleet.is_none();
        if stdin.is_none() && !is_over && !is_starting && is_on_one_host {
            // It is being taken over from another process. Its host takes input at any time.
            let kept = self.shared.registry().kept(&job.id);
            let known = kept.or_else(|| self.shared.foreign_jobs.get(&job.id));
            stdin = known.map(|job| stdin_on_host(&self.shared, &job));
        }
        let stdin = stdin.ok_or(if is_starting {
            WriteError::Starting
        } else {
            WriteError::JobEnded
        });
        stdin.map(StdinRoute::Here)
    }

    /// The process that records a job, if it can be called.
    pub(crate) fn owner_of(&self, job: &Job) -> Option<OwnerProcess> {
        let store = &self.shared.storing.as_ref()?.store;
        let socket = store.socket(&self.shared.foreign_jobs.record(&job.id)?.owner)?;
        Some(OwnerProcess {
            job: job.id.clone(),
            name: self.owner_name(job)?,
            socket,
        })
    }

    /// The other replicas of the cluster, if there is one.
    pub fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.shared.storing.as_ref()?.store.peers()
    }

    /// The replica of the cluster that runs a job, if it is another one that is alive.
    pub async fn replica_of(&self, id: &JobId) -> Option<String> {
        let storing = self.shared.storing.as_ref()?;
        // Other processes of one machine share a directory, and pass nothing on.
        storing.store.peers()?;
        if self.shared.registry().jobs.contains_key(id) {
            return None;
        }
        let id = id.clone();
        let record = storing.blocking(move |store| store.get(&id)).await?.ok()??;
        let is_other = record.owner != storing.store.own_name();
        // Also if it entered after the last look at the others.
        let is_alive = storing.store.owner(&record.owner).is_some();
        (record.outcome.is_none() && is_other && is_alive).then_some(record.owner)
    }

    /// Whether a job waits for input on its stdin. Asks the host over the job's own connection.
    /// `None` if the host can't report it, or not within two seconds.
    pub(super) async fn awaits_stdin(&self, job: &Job) -> Option<AwaitsStdin> {
        let place = self.shared.registry().place(&job.id)?;
        let group = job.process_group()?;
        let link = place.link.upgrade()?;
        // No answer arrives over a connection whose receiving is held back.
        if job.is_held() {
            return None;
        }
        let script = Script::without_input(awaits_stdin_script(&group));
        AwaitsStdin::parse(&link.run_script(script, STDIN_STATE_TIMEOUT).await.ok()??)
    }

    /// The process that records a job, if it is not this one.
    pub(super) fn owner_name(&self, job: &Job) -> Option<String> {
        let storing = self.shared.storing.as_ref()?;
        let record = self.shared.foreign_jobs.record(&job.id)?;
        Some(
            storing
                .store
                .owner(&record.owner)
                .unwrap_or_else(|| "a process that has ended".to_owned()),
        )
    }

    /// Ends a durable job whose processes are dead, and whose host does not report that.
    pub async fn end_unreported(&self, job: Permitted<'_, ForgetJob>) {
        let job = job.job();
        drop(self.shared.followers.unfollow(&HostRef::of(job), &job.id));
        let outcome = Outcome::Lost(LostWhy::SupervisorDied, None);
        finish(&self.shared, job, &outcome).await;
    }

    /// Deletes a finished job. A later lookup reports it as [expired](Lookup::Expired).
    pub async fn forget(&self, job: Permitted<'_, ForgetJob>) {
        let job = job.job();
        // First, so that a lookup during the slow steps below reports the job as expired.
        self.shared.registry().bury(&job.id);
        self.shared.foreign_jobs.forget(&job.id);
        if job.spec.durable {
            let host = HostRef::of(job);
            let command = spool::forget(&[job.id.as_str()]);
            let asking = ask(&self.shared, &host, &command, &[]);
            if !matches!(timeout(SPOOL_REMOVAL, asking).await, Ok(Ok(_))) {
                tracing::debug!(job = %job.id, "its files stay on the host until they are swept");
            }
        }
        if let Some(storing) = &self.shared.storing {
            storing.flush(FLUSH_TO_END).await;
            let id = job.id.clone();
            let removed = storing.blocking(move |store| store.remove(&id)).await;
            if let Some(Err(error)) = removed {
                tracing::warn!(job = %job.id, %error, "a stored job could not be removed");
            }
        }
    }
}

fn start_storing(
    store: Result<Arc<dyn Store>, StoreError>,
    limits: &Limits,
) -> Result<Arc<Storing>, StoreError> {
    Storing::start(store?, limits.log(), limits.stored())
        .map_err(|error| StoreError::Records(error.to_string()))
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(storing) = &self.shared.storing {
            storing.stop();
        }
    }
}
