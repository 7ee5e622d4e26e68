//! Step 3: the way to launch each kind of job.

use std::sync::Arc;

use super::launch_attached::launch_attached;
use super::launch_durable::launch_durable;
use super::launch_fleet::launch_fleet;
use super::reserve::Reservation;
use crate::runner::state::Shared;
use crate::runner::state::SpawnError;

/// Launches a job and leaves it to a task that records it. Nothing is sent to a host once the start
/// was abandoned.
pub(super) async fn launch(
    shared: Arc<Shared>,
    reservation: Reservation,
) -> Result<(), SpawnError> {
    if reservation.job.fleet.is_some() {
        launch_fleet(&shared, reservation).await
    } else if reservation.job.spec.durable {
        launch_durable(&shared, reservation).await
    } else {
        launch_attached(&shared, reservation).await
    }
}
