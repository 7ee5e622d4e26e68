use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::open_stored::close;
use super::shared::Shared;
use crate::store::{LogLimits, Store, StoreError};

/// Interval at which jobs are looked for whose process has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for jobs whose process has ended, and closes their records.
pub(super) async fn adopt(shared: Arc<Shared>) {
    let Some(store) = shared.storing.as_ref().map(|storing| Arc::clone(&storing.store)) else { return };
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let (store, limits) = (Arc::clone(&store), shared.limits.log());
        let adopted = spawn_blocking(move || close_orphans(&*store, limits)).await;
        if let Ok(Err(error)) = adopted {
            tracing::debug!(%error, "jobs of processes that have ended can't be looked for");
        }
    }
}

fn close_orphans(store: &dyn Store, limits: LogLimits) -> Result<(), StoreError> {
    for record in store.orphans()? {
        if store.claim(&record)? {
            tracing::info!(job = %record.id, "its process has ended: the job is lost");
            close(store, record, limits)?;
        }
    }
    Ok(())
}
