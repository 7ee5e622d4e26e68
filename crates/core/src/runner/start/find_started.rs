//! Finds the job of a start that is repeated, and starts nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::register::finish_interrupted_start;
use super::spawn::wait_until_started;
use crate::runner::foreign::lookup;
use crate::runner::state::{Lookup, RunnerState, SpawnError, StartOrder};
use sshjobs_job::{Job, Scope};

/// Finds the job that an earlier start of this order has led to. Implements
/// [`Runner::find_started`](crate::runner::api::Runner::find_started).
pub(crate) async fn find_started(
    shared: &Arc<RunnerState>,
    order: StartOrder,
    timeout: Duration,
) -> Result<Option<Arc<Job>>, SpawnError> {
    let deadline = Instant::now() + timeout;
    // The earlier call may be under way.
    let in_this_process = shared.registry().starting_with_id(&order.id);
    if let Some(job) = in_this_process {
        wait_until_started(&job, deadline).await?;
    }

    if let Some(storing) = &shared.storing {
        let id = order.id.clone();
        let stored = storing.blocking(move |store| store.get(&id)).await.unwrap_or(Ok(None));
        let record = stored.map_err(|error| SpawnError::Unstored(error.to_string()))?;
        if let Some(record) = record {
            // Sends the order of that job again, which its host obeys at most once.
            finish_interrupted_start(shared, order.spec, &record).await?;
        }
    }

    match lookup(shared, &Scope::Of(order.caller), &order.id).await {
        Lookup::Found(job) => Ok(Some(job)),
        Lookup::Expired(tombstone) => Err(SpawnError::Expired(tombstone)),
        Lookup::Unknown => Ok(None),
        Lookup::Unreadable(error) => Err(SpawnError::Unstored(error.to_string())),
    }
}
