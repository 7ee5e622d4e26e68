//! Step 3: the way to launch each kind of job.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::launch_attached::launch_attached;
use super::launch_durable::launch_durable;
use super::launch_fleet::launch_fleet;
use super::reserve::SlotReservation;
use crate::runner::state::{QueuedJob, RunnerState, SpawnError};

/// Launches jobs that other processes have left in their queues.
pub(crate) async fn launch_queued(shared: Arc<RunnerState>, mut queued: mpsc::Receiver<QueuedJob>) {
    while let Some(job) = queued.recv().await {
        let launching = {
            let shared = Arc::clone(&shared);
            async move {
                let mut reservation = SlotReservation::of_queued(&shared, job);
                let lacks_secrets =
                    reservation.record.as_ref().is_some_and(|record| record.lacks_secrets());
                if lacks_secrets {
                    reservation.fail(&SpawnError::SecretsGone);
                    return;
                }
                // The job has the error as its outcome.
                drop(launch(shared, reservation).await);
            }
        };
        shared.spawn_task(launching);
    }
}

/// Launches a job and leaves it to a task that records it. Nothing is sent to a host once the start
/// was abandoned.
pub(super) async fn launch(
    shared: Arc<RunnerState>,
    reservation: SlotReservation,
) -> Result<(), SpawnError> {
    let mut reservation = reservation;
    if reservation.job.spec.may_wait() {
        reservation.wait_for_turn().await?;
    }
    if reservation.job.fleet.is_some() {
        launch_fleet(&shared, reservation).await
    } else if reservation.job.spec.durable {
        launch_durable(&shared, reservation).await
    } else {
        launch_attached(&shared, reservation).await
    }
}
