use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::adopt::adopt;
use super::durable::stdin_on_host;
use super::elsewhere::Elsewhere;
use super::find::lookup;
use super::fleet::run_fleets;
use super::follow_host::ask;
use super::followers::Followers;
use super::leftovers::end_leftovers;
use super::registry::Registry;
use super::shared::Shared;
use super::start::spawn;
use super::stdin::Stdin;
use super::storing::Storing;
use super::sweep::{connect_ahead, sweep};
use super::{Limits, Lookup, Order, SpawnError, WriteError};
use crate::hosts::{HostRef, Hosts, run_short};
use crate::job::{AwaitsStdin, Job, JobId, Phase, Scope, awaits_stdin_script};
use crate::spool;
use crate::store::{Store, StoreError};

/// Runs jobs. Dropping it without [`shutdown`](Self::shutdown) stops its tasks and leaves remote processes alone.
pub struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: Arc<Mutex<JoinSet<()>>>,
}

/// Time limit for a host to say whether a job reads its stdin.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the removal of a durable job's files from its host.
const SPOOL_REMOVAL: Duration = Duration::from_secs(10);
/// Most hosts that wait for a connection to be made ahead.
const HEAVY_HOSTS: usize = 16;
/// Most fleets that wait to be rolled out.
const FLEETS: usize = 64;

impl Runner {
    /// A runner without jobs of its own, which stores what they print in `store`; with an error, jobs run unstored and say so. Must
    /// be called within a tokio runtime.
    pub fn new(hosts: Arc<Hosts>, limits: Limits, store: Option<Result<Arc<dyn Store>, StoreError>>) -> Self {
        let (storing, unstored) = match store.map(|store| start_storing(store, &limits)).transpose() {
            Ok(storing) => (storing, None),
            Err(why) => (None, Some(why)),
        };
        let secret = storing.as_ref().map_or_else(|| rand::rng().random(), |storing| storing.store.secret());
        let (became_heavy, heavy) = mpsc::channel(HEAVY_HOSTS);
        let (fleets, to_run) = mpsc::channel(FLEETS);
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let shared = Arc::new(Shared {
            hosts,
            limits,
            registry: Mutex::new(Registry::new(secret)),
            storing,
            unstored,
            elsewhere: Elsewhere::default(),
            followers: Followers::default(),
            adopts: limits.adopts_jobs,
            stopping: CancellationToken::new(),
            growth: Arc::default(),
            became_heavy,
            fleets,
            tasks: Arc::downgrade(&tasks),
        });
        shared.leave(sweep(Arc::clone(&shared)));
        shared.leave(connect_ahead(Arc::clone(&shared), heavy));
        shared.leave(run_fleets(Arc::clone(&shared), to_run));
        shared.leave(adopt(Arc::clone(&shared)));
        shared.leave(end_leftovers(Arc::clone(&shared)));
        Self { shared, tasks }
    }

    /// The bounds within which jobs run.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Starts a job and returns once the server runs it, or when `patience` runs out: then the job is still starting, and will
    /// end as not started if it can't be.
    ///
    /// With a key that was used before, returns the job it was used for and starts nothing. Cancelling before the
    /// command was sent starts nothing; afterwards the job goes on and is listed.
    pub async fn spawn(&self, order: Order, patience: Duration) -> Result<Arc<Job>, SpawnError> {
        Box::pin(spawn(&self.shared, order, patience)).await
    }

    /// What is known under a job's name: a job of this process, of another, or of an earlier one. A job out of scope is unknown.
    pub async fn lookup(&self, scope: &Scope, id: &JobId) -> Lookup {
        lookup(&self.shared, scope, id).await
    }

    /// Waits until a job has started or failed to, for `patience` at most.
    pub async fn started(&self, job: &Job, patience: Duration) {
        job.wait_for(patience, |log| *log.phase() != Phase::Starting).await;
    }

    /// Writes to a job's stdin within `patience`.
    pub async fn write(&self, job: &Job, data: &[u8], patience: Duration) -> Result<(), WriteError> {
        self.stdin(job)?.write(data, patience).await
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
        Ok(self.stdin(job)?.controls().resize(size).await?)
    }

    fn stdin(&self, job: &Job) -> Result<Arc<Stdin>, WriteError> {
        let is_over = job.is_over();
        if let (false, Some(owner)) = (is_over, self.owner(job)) {
            // The host itself takes what is for a durable job.
            let job = self.shared.elsewhere.get(&job.id).filter(|job| job.spec.durable);
            return job.map(|job| stdin_on_host(&self.shared, &job)).ok_or(WriteError::NotOwner(owner));
        }
        let stdin = self.shared.registry().stdin(&job.id).filter(|_| !is_over);
        // It may have ended since.
        let is_starting = job.read_log(|log| *log.phase() == Phase::Starting);
        stdin.ok_or(if is_starting { WriteError::Starting } else { WriteError::JobEnded })
    }

    /// Whether a job waits for its stdin. It takes a look at the host, over the job's own connection; none when the host can't
    /// tell, or not within two seconds.
    pub async fn awaits_stdin(&self, job: &Job) -> Option<AwaitsStdin> {
        let place = self.shared.registry().place(&job.id)?;
        let (group, link) = job.process_group().zip(place.link.upgrade()).filter(|_| !job.is_held())?;
        let script = awaits_stdin_script(&group, link.shell);
        let asked = async { run_short(link.open().await?.channel, &script, LOOK_TIMEOUT).await };
        AwaitsStdin::parse(&tokio::time::timeout(LOOK_TIMEOUT, asked).await.ok()?.ok()?)
    }

    /// The process that records a job, when that is another one.
    pub fn owner(&self, job: &Job) -> Option<String> {
        let (storing, record) = (self.shared.storing.as_ref()?, self.shared.elsewhere.record(&job.id)?);
        Some(storing.store.owner(&record.owner).unwrap_or_else(|| "a process that has ended".to_owned()))
    }

    /// Forgets a finished job; a later look finds that it has [expired](Lookup::Expired).
    pub async fn forget(&self, job: &Job) {
        self.shared.registry().bury(&job.id);
        self.shared.elsewhere.forget(&job.id);
        if job.spec.durable {
            let (host, command) = (HostRef::of(job), spool::forget(&[job.id.as_str()]));
            let asking = ask(&self.shared, &host, &command, &[]);
            if !matches!(timeout(SPOOL_REMOVAL, asking).await, Ok(Ok(_))) {
                tracing::debug!(job = %job.id, "its files stay on the host until they are swept");
            }
        }
        if let Some(storing) = &self.shared.storing {
            storing.flush().await;
            let (store, id) = (Arc::clone(&storing.store), job.id.clone());
            let removed = tokio::task::spawn_blocking(move || store.remove(&id)).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(job = %job.id, %error, "a stored job could not be removed");
            }
        }
    }
}

fn start_storing(store: Result<Arc<dyn Store>, StoreError>, limits: &Limits) -> Result<Arc<Storing>, String> {
    let store = store.map_err(|error| error.to_string())?;
    Storing::new(store, limits.log(), limits.stored()).map_err(|error| error.to_string())
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(storing) = &self.shared.storing {
            storing.stop();
        }
    }
}
