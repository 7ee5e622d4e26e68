use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::elsewhere::Elsewhere;
use super::followers::Followers;
use super::meter::Growth;
use super::registry::Registry;
use super::storing::Storing;
use crate::hosts::{HostRef, Hosts};
use crate::job::Job;
use crate::lock::lock;

/// What the runner's tasks work on.
pub(super) struct Shared {
    pub(super) hosts: Arc<Hosts>,
    pub(super) limits: Limits,
    pub(super) registry: Mutex<Registry>,
    /// Stores what jobs print, if that is wanted and possible.
    pub(super) storing: Option<Arc<Storing>>,
    /// Why it is not possible, if it is wanted.
    pub(super) unstored: Option<String>,
    /// Jobs that are known from the store.
    pub(super) elsewhere: Elsewhere,
    /// What follows durable jobs on their hosts.
    pub(super) followers: Followers,
    /// Whether durable jobs that no process follows are taken over unasked.
    pub(super) adopts: bool,
    pub(super) stopping: CancellationToken,
    pub(super) growth: Arc<Growth>,
    pub(super) became_heavy: mpsc::Sender<HostRef>,
    /// Fleets to roll out, or to go on with, and whether they had secrets that are gone.
    pub(super) fleets: mpsc::Sender<(Arc<Job>, bool)>,
    /// The runner's: its tasks end with it.
    pub(super) tasks: Weak<Mutex<JoinSet<()>>>,
}

impl Shared {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Leaves a task to the runner; drops it when the runner is gone.
    pub(super) fn leave(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let mut tasks = lock(&tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
