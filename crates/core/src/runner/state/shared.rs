//! State shared by the runner's tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::followers::Followers;
use super::foreign_jobs::ForeignJobs;
use super::limits::Limits;
use super::meter::{EndCounts, Growth};
use super::queues::{QueueRule, Queues};
use super::registry::Registry;
use super::screens::Screens;
use super::secret_reader::SecretReader;
use super::sessions::Sessions;
use super::stdin::JobStdin;
use super::tasks::RunnerTasks;
use crate::hosts::{HostRef, Hosts, Link};
use crate::keeping::Storing;
use sshjobs_base::lock::{LockGuard, lock};
use sshjobs_job::{Job, JobId, Outcome};
use sshjobs_store::{Record, SharedValue, StoreError};

/// State shared by the runner's tasks.
pub(crate) struct RunnerState {
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) limits: Limits,
    pub(crate) registry: Mutex<Registry>,
    /// Stores the output of jobs. `None` if it is disabled or impossible.
    pub(crate) storing: Option<Arc<Storing>>,
    /// Why storing is impossible, if it was requested.
    pub(crate) unstored: Option<StoreError>,
    /// Jobs known from the store.
    pub(crate) foreign_jobs: ForeignJobs,
    /// Reaches hosts to follow their durable jobs.
    pub(crate) sessions: Box<dyn Sessions>,
    /// Followers of durable jobs.
    pub(crate) followers: Followers,
    /// Screens of terminal jobs.
    pub(crate) screens: Screens,
    /// Whether this process adopts durable jobs that no process follows.
    pub(crate) adopts: bool,
    /// Reads the secrets of durable jobs that this process takes over.
    pub(crate) secrets: Arc<dyn SecretReader>,
    /// Hears of the jobs that are recorded here.
    pub(crate) observer: Box<dyn Observer>,
    /// Jobs in queues.
    pub(crate) queues: SharedValue<Queues>,
    /// Rules of queues, by name.
    pub(crate) queue_rules: BTreeMap<String, QueueRule>,
    pub(crate) stopping: CancellationToken,
    pub(crate) growth: Arc<Growth>,
    pub(crate) ends: EndCounts,
    pub(crate) became_heavy: mpsc::Sender<HostRef>,
    /// Queue of fleets to start or resume.
    pub(crate) fleets: mpsc::Sender<FleetToRun>,
    /// Queue of adopted jobs that wait for their turn.
    pub(crate) queued: mpsc::Sender<QueuedJob>,
    /// Spawns tasks that end with the runner.
    pub(crate) tasks: RunnerTasks,
}

/// Hears of the jobs that a runner records. Its methods must not block.
pub trait Observer: Send + Sync {
    /// A job on one host is running, and is recorded here from now on.
    fn note_begin(&self, job: &Arc<Job>);

    /// A job has ended. Its log may not show that yet, if its store is slow.
    fn note_end(&self, job: &Job, outcome: &Outcome);
}

/// A fleet whose roll-out starts or continues.
pub(crate) struct FleetToRun {
    pub(crate) job: Arc<Job>,
    /// The values of its variables and its text for stdin were lost with the process that started
    /// it.
    pub(crate) lacks_secrets: bool,
    /// Resolves once the fleet accepts input and signals.
    pub(crate) is_running: oneshot::Sender<()>,
}

/// A durable job that another process has left in its queue.
pub(crate) struct QueuedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) record: Record,
    /// Cancelled when the job is signalled.
    pub(crate) abandoned: CancellationToken,
}

impl RunnerState {
    pub(crate) fn registry(&self) -> LockGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Notes that a job has ended, and takes it out of its queue.
    pub(crate) fn finish(self: &Arc<Self>, job: &Job, outcome: &Outcome) {
        self.registry().finish(&job.id);
        self.ends.count(outcome);
        self.observer.note_end(job, outcome);
        self.leave_queue_later(job);
    }

    /// Takes a job out of its queue, in a task.
    pub(crate) fn leave_queue_later(self: &Arc<Self>, job: &Job) {
        if job.spec.turn.queue.is_some() {
            let shared = Arc::clone(self);
            let id = job.id.clone();
            self.spawn_task(async move { shared.leave_queue(&id).await });
        }
    }

    /// Takes a job that has ended out of its queue.
    pub(crate) async fn leave_queue(&self, job: &JobId) {
        let id = job.clone();
        let left = self.queues.change(move |queues| queues.leave(&id)).await;
        if let Err(error) = left {
            // The jobs behind it notice that it has ended, too.
            tracing::debug!(%job, %error, "an ended job can't be taken out of its queue");
        }
    }

    /// The rule of a queue.
    pub(crate) fn queue_rule(&self, queue: &str) -> QueueRule {
        self.queue_rules.get(queue).copied().unwrap_or_default()
    }

    /// Notes that a job is running and recorded here, with its stdin. `link` is the connection over which
    /// it was started; `None` if another process started it.
    pub(crate) fn note_begin(
        &self,
        job: &Arc<Job>,
        stdin: Arc<JobStdin>,
        link: Option<&Arc<Link>>,
    ) {
        self.registry().note_followed(&job.id, stdin, link);
        self.observer.note_begin(job);
    }

    /// Spawns a task that ends with the runner. Drops the task if the runner has ended.
    pub(crate) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
