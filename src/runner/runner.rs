use std::cmp::Reverse;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use super::stdin::Stdin;
use super::sweep::{connect_ahead, sweep};
use super::{Limits, Lookup, WriteError};
use crate::hosts::{Hosts, run_short};
use crate::job::{AwaitsStdin, Caller, Job, JobId, Phase, awaits_stdin_script};

/// Runs jobs. Dropping it without [`shutdown`](Self::shutdown) stops its tasks and leaves remote processes alone.
pub struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: Arc<Mutex<JoinSet<()>>>,
}

/// Time limit for a host to say whether a job reads its stdin.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Most hosts that wait for a connection to be made ahead.
const HEAVY_HOSTS: usize = 16;

impl Runner {
    /// A runner without jobs. Must be called within a tokio runtime.
    pub fn new(hosts: Arc<Hosts>, limits: Limits) -> Self {
        let (became_heavy, heavy) = mpsc::channel(HEAVY_HOSTS);
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let shared = Arc::new(Shared {
            hosts,
            limits,
            registry: Mutex::default(),
            stopping: CancellationToken::new(),
            growth: Arc::default(),
            became_heavy,
            tasks: Arc::downgrade(&tasks),
        });
        shared.leave(sweep(Arc::clone(&shared)));
        shared.leave(connect_ahead(Arc::clone(&shared), heavy));
        Self { shared, tasks }
    }

    /// The bounds within which jobs run.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// What a caller knows under a job's name.
    pub fn lookup(&self, caller: &Caller, id: &JobId) -> Lookup {
        self.shared.registry().lookup(caller, id)
    }

    /// Every job of the caller's that is kept, the newest first.
    pub fn jobs(&self, caller: &Caller) -> Vec<Arc<Job>> {
        let mut jobs: Vec<_> =
            self.shared.registry().all().filter(|job| job.caller == *caller).cloned().collect();
        jobs.sort_by_key(|job| Reverse((job.status().started_at, job.id.clone())));
        jobs
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
        let stdin = self.shared.registry().stdin(&job.id).filter(|_| !is_over);
        stdin.ok_or(if is_over { WriteError::JobEnded } else { WriteError::Starting })
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

    /// Forgets a finished job; a later look finds that it has [expired](Lookup::Expired).
    pub fn forget(&self, job: &Job) {
        self.shared.registry().bury(&job.id);
    }
}
