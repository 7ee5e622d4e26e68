//! Changes to queues: hold, release and move.

use std::collections::BTreeSet;

use crate::runner::state::{QueuePlace, QueueRule, RunnerState};
use sshjobs_job::JobId;

/// A change of a job that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChange {
    /// It does not start until it is released, and lets others pass.
    Hold,
    /// It is no longer held.
    Release,
    /// It moves among the jobs that wait in its queue.
    Move(QueuePlace),
}

/// Why a queue was not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// The job does not wait in a queue.
    #[error("{0} does not wait in a queue")]
    NotQueued(JobId),
    /// The job would start before one that its caller does not see.
    #[error("{0} would overtake a job that its caller does not see")]
    Overtakes(JobId),
    /// The queues can't be read or stored.
    #[error("the queues can't be used: {0}")]
    Unusable(String),
}

/// A queue with the jobs in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// Whether none of its jobs starts until it is released.
    pub is_held: bool,
    /// How many of its jobs run at a time.
    pub rule: QueueRule,
    /// Its jobs in the order in which they start.
    pub jobs: Vec<QueuedJobStatus>,
}

/// A job in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJobStatus {
    /// The job.
    pub id: JobId,
    /// Whether it had its turn: it starts or runs.
    pub has_turn: bool,
    /// Whether it waits until it is released.
    pub is_held: bool,
}

/// Changes a job that waits. A job that has its turn meanwhile is not changed. A move overtakes only the
/// jobs in `visible`.
pub(crate) async fn change_job(
    shared: &RunnerState,
    job: &JobId,
    change: QueueChange,
    visible: BTreeSet<JobId>,
) -> Result<(), QueueError> {
    let id = job.clone();
    let changed = shared.queues.change(move |queues| match change {
        QueueChange::Hold if queues.hold(&id, true) => Ok(()),
        QueueChange::Release if queues.hold(&id, false) => Ok(()),
        QueueChange::Hold | QueueChange::Release => Err(QueueError::NotQueued(id.clone())),
        QueueChange::Move(place) => {
            let overtaken =
                queues.overtaken(&id, place).ok_or_else(|| QueueError::NotQueued(id.clone()))?;
            if overtaken.iter().any(|other| !visible.contains(other)) {
                return Err(QueueError::Overtakes(id.clone()));
            }
            queues.move_to(&id, place);
            Ok(())
        }
    });
    changed.await.map_err(unusable)?
}

/// Holds a whole queue, or releases it. It need not have any jobs yet.
pub(crate) async fn hold_queue(
    shared: &RunnerState,
    name: &str,
    is_held: bool,
) -> Result<(), QueueError> {
    let name = name.to_owned();
    shared
        .queues
        .change(move |queues| queues.hold_queue(&name, is_held))
        .await
        .map_err(unusable)
}

/// All queues that have jobs or are held, by name.
pub(crate) async fn list_queues(shared: &RunnerState) -> Result<Vec<QueueStatus>, QueueError> {
    let queues = shared.queues.read().await.map_err(unusable)?;
    let mut names: Vec<&String> =
        queues.entries().iter().map(|entry| &entry.queue).chain(queues.held()).collect();
    names.sort_unstable();
    names.dedup();
    let status_of = |name: &String| QueueStatus {
        name: name.clone(),
        is_held: queues.held().contains(name),
        rule: shared.queue_rule(name),
        jobs: queues
            .entries()
            .iter()
            .filter(|entry| entry.queue == *name)
            .map(|entry| QueuedJobStatus {
                id: entry.job.clone(),
                has_turn: entry.has_turn,
                is_held: entry.is_held,
            })
            .collect(),
    };
    Ok(names.into_iter().map(status_of).collect())
}

fn unusable(error: impl std::fmt::Display) -> QueueError {
    QueueError::Unusable(error.to_string())
}
