//! The launch of a durable job: its host starts it under a supervisor of its own, and a session
//! follows it from here.

use std::sync::Arc;

use super::reserve::SlotReservation;
use crate::runner::durable::{record_started, start_on_host};
use crate::runner::state::{RunnerState, SpawnError};

/// Starts a durable job on its host, and leaves following and recording it to tasks.
pub(super) async fn launch_durable(
    shared: &Arc<RunnerState>,
    mut reservation: SlotReservation,
) -> Result<(), SpawnError> {
    // First: with the record another process can find the job if this one is killed.
    if let Err(error) = reservation.wait_until_registered().await {
        // The job would outlive the only process that knows it.
        let error = SpawnError::Unstored(error.to_string());
        reservation.fail(&error);
        return Err(error);
    }

    let job = Arc::clone(&reservation.job);
    let started = match start_on_host(shared, &job, &reservation.abandoned).await {
        Ok(started) => started,
        Err(error) => {
            reservation.fail(&error);
            return Err(error);
        }
    };

    // No await from here on: the job runs and must be followed.
    if let Some(record) = reservation.commit()
        && let Some(storing) = &shared.storing
    {
        storing.keep(&job, record, started.machine());
    }
    // After `keep`: output that is recorded before it would not be stored.
    record_started(shared, &job, started);
    Ok(())
}
