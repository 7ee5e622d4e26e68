//! The launch of a fleet: its roll-out starts the members, each as a job of its own.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::reserve::SlotReservation;
use crate::runner::state::{FleetToRun, RunnerState, SpawnError};

/// Hands a fleet to the runner's roll-out.
pub(super) async fn launch_fleet(
    shared: &Arc<RunnerState>,
    mut reservation: SlotReservation,
) -> Result<(), SpawnError> {
    let job = Arc::clone(&reservation.job);
    // First: with the record another process can continue the roll-out if this one is killed.
    if let Err(error) = reservation.wait_until_registered().await {
        if job.spec.durable {
            let error = SpawnError::Unstored(error.to_string());
            reservation.fail(&error);
            return Err(error);
        }
        job.note_trouble(Some(error.to_string()));
    }

    let slot = tokio::select! {
        slot = shared.fleets.reserve() => slot.map_err(|_| SpawnError::ShuttingDown),
        () = reservation.abandoned.cancelled() => Err(SpawnError::Abandoned),
        () = shared.stopping.cancelled() => Err(SpawnError::ShuttingDown),
    };
    let slot = match slot {
        Ok(slot) => slot,
        Err(error) => {
            reservation.fail(&error);
            return Err(error);
        }
    };

    // No await before the fleet is sent: once committed it must reach the roll-out, which ends it.
    if let Some(record) = reservation.commit()
        && let Some(storing) = &shared.storing
    {
        storing.keep(&job, record, None);
    }
    let (is_running, running) = oneshot::channel();
    slot.send(FleetToRun {
        job,
        lacks_secrets: false,
        is_running,
    });
    // Fails only if the runner has shut down, which ends the fleet.
    running.await.ok();
    Ok(())
}
