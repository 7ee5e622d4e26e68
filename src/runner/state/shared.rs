//! State shared by the runner's tasks.

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::followers::Followers;
use super::foreign_jobs::ForeignJobs;
use super::limits::Limits;
use super::meter::Growth;
use super::registry::Registry;
use super::screens::Screens;
use super::secret_reader::SecretReader;
use crate::hosts::{HostRef, Hosts};
use crate::job::Job;
use crate::lock::{Guard, lock};
use crate::runner::storing::Storing;

/// State shared by the runner's tasks.
pub(crate) struct Shared {
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) limits: Limits,
    pub(crate) registry: Mutex<Registry>,
    /// Stores the output of jobs. `None` if it is disabled or impossible.
    pub(crate) storing: Option<Arc<Storing>>,
    /// Why storing is impossible, if it was requested.
    pub(crate) unstored: Option<String>,
    /// Jobs known from the store.
    pub(crate) foreign_jobs: ForeignJobs,
    /// Followers of durable jobs.
    pub(crate) followers: Followers,
    /// Screens of terminal jobs.
    pub(crate) screens: Screens,
    /// Whether this process adopts durable jobs that no process follows.
    pub(crate) adopts: bool,
    /// Reads the secrets of durable jobs that this process takes over.
    pub(crate) secrets: Arc<dyn SecretReader>,
    /// Called with each job that has ended here.
    pub(crate) on_end: OnEnd,
    pub(crate) stopping: CancellationToken,
    pub(crate) growth: Arc<Growth>,
    pub(crate) became_heavy: mpsc::Sender<HostRef>,
    /// Queue of fleets to start or resume.
    pub(crate) fleets: mpsc::Sender<FleetToRun>,
    /// The runner's tasks. They end with the runner.
    pub(crate) tasks: Weak<Mutex<JoinSet<()>>>,
}

/// Called with a job that has ended. It must not block.
pub type OnEnd = Box<dyn Fn(&Job) + Send + Sync>;

/// A fleet whose roll-out starts or continues.
pub(crate) struct FleetToRun {
    pub(crate) job: Arc<Job>,
    /// The values of its variables and its text for stdin were lost with the process that started
    /// it.
    pub(crate) lacks_secrets: bool,
    /// Resolves once the fleet accepts input and signals.
    pub(crate) is_running: oneshot::Sender<()>,
}

impl Shared {
    pub(crate) fn registry(&self) -> Guard<'_, Registry> {
        lock(&self.registry)
    }

    /// Notes that a job has ended.
    pub(crate) fn finish(&self, job: &Job) {
        self.registry().finish(&job.id);
        (self.on_end)(job);
    }

    /// Spawns a task that ends with the runner. Drops the task if the runner has ended.
    pub(crate) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let mut tasks = lock(&tasks);
        // A `JoinSet` keeps ended tasks until they are joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
