//! The tasks of a runner.

use std::sync::{Arc, Mutex, Weak};

use tokio::task::JoinSet;

use sshjobs_base::lock::lock;

/// Spawns tasks that end with the runner.
///
/// Weak, because each task holds the runner's shared state: a strong reference would keep both for ever.
#[derive(Clone)]
pub(crate) struct RunnerTasks(Weak<Mutex<JoinSet<()>>>);

impl RunnerTasks {
    pub(crate) fn of(tasks: &Arc<Mutex<JoinSet<()>>>) -> Self {
        Self(Arc::downgrade(tasks))
    }

    /// Spawns a task that ends with the runner. Drops the task if the runner has ended.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(tasks) = self.0.upgrade() else { return };
        let mut tasks = lock(&tasks);
        // A `JoinSet` keeps ended tasks until they are joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
