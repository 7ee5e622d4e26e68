//! The launch of an attached job: its command is sent on a channel, and a task records the channel.

use std::sync::Arc;

use super::record_attached::record_in_task;
use super::reserve::SlotReservation;
use super::send_command::send_command;
use crate::runner::state::{RunnerState, SpawnError};

/// Sends a job's command, and leaves the job to a task that records it.
pub(super) async fn launch_attached(
    shared: &Arc<RunnerState>,
    mut reservation: SlotReservation,
) -> Result<(), SpawnError> {
    let job = Arc::clone(&reservation.job);
    let sent = match send_command(shared, &job, &reservation.abandoned).await {
        Ok(sent) => sent,
        Err(error) => {
            reservation.fail(&error);
            return Err(error);
        }
    };

    // No await from here to the recording task: the command may run already.
    if let Some(record) = reservation.commit()
        && let Some(storing) = &shared.storing
    {
        storing.keep(&job, record, sent.lease.connection().machine());
    }
    // After `keep`: output that is recorded before it would not be stored.
    record_in_task(shared, &job, sent);

    // Last, so that a slow store does not delay the command. A job that could not be registered
    // runs all the same, and says that it is not stored.
    if let Err(error) = reservation.wait_until_registered().await {
        job.note_trouble(Some(error.to_string()));
    }
    Ok(())
}
