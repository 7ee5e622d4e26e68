use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::Lookup;
use super::adopt::adopt_if_orphan;
use super::mirror::mirror;
use super::open_stored::{Opened, open};
use super::shared::Shared;
use crate::job::{JobId, Pace, Scope};

/// Time for which a durable job that has just been taken over is waited for: its host has more to tell than the store.
const CATCH_UP: Duration = Duration::from_secs(5);

/// What is known under a job's name, as [`Runner::lookup`](super::Runner::lookup) tells.
pub(super) async fn lookup(shared: &Arc<Shared>, scope: &Scope, id: &JobId) -> Lookup {
    let here = shared.registry().lookup(scope, id);
    if let Lookup::Found(job) = &here {
        job.caught_up(CATCH_UP).await;
    }
    if !matches!(here, Lookup::Unknown) {
        return here;
    }
    let Some(storing) = &shared.storing else { return Lookup::Unknown };
    adopt_if_orphan(shared, id).await;
    let here = shared.registry().lookup(scope, id);
    if let Lookup::Found(job) = &here {
        job.caught_up(CATCH_UP).await;
    }
    if !matches!(here, Lookup::Unknown) {
        return here;
    }
    if let Some(job) = shared.elsewhere.get(id) {
        return if scope.has(&job.caller) { Lookup::Found(job) } else { Lookup::Unknown };
    }
    let (store, limits, id) = (Arc::clone(&storing.store), shared.limits, id.clone());
    let (ring, log) = (limits.ring(Pace::Free), limits.log());
    let opened = spawn_blocking(move || open(&*store, &id, (ring, log))).await;
    match opened.unwrap_or(Ok(None)) {
        Ok(Some(opened)) if scope.has(&opened.record.caller) => {
            let Opened { job, record, log, end } = opened;
            let (job, is_new) = shared.elsewhere.take_in(job, record);
            if is_new && !job.is_over() {
                let (of, store) = (Arc::downgrade(&job), Arc::clone(&storing.store));
                shared.leave(mirror(of, store, (log, end), ring));
            }
            Lookup::Found(job)
        }
        Ok(_) => Lookup::Unknown,
        Err(error) => {
            tracing::warn!(%error, "a stored job can't be read");
            Lookup::Unknown
        }
    }
}
