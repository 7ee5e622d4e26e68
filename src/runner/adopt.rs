use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::durable::resume_durable;
use super::open_stored::{Resumed, close, resume};
use super::shared::Shared;
use super::storing::Storing;
use crate::job::{JobId, Pace, wall_now};
use crate::lock::lock;
use crate::store::{Record, StoreError};

/// Interval at which jobs are looked for whose process has ended.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which an interrupted start is left for a retry with its key.
const ASKED_AGAIN: Duration = Duration::from_secs(15);

/// Looks for jobs whose process has ended: closes the attached ones, which are lost, and goes on with the durable ones.
pub(super) async fn adopt(shared: Arc<Shared>) {
    let Some(storing) = shared.storing.clone() else { return };
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let store = Arc::clone(&storing.store);
        let orphans = spawn_blocking(move || store.orphans()).await;
        let orphans = match orphans {
            Ok(Ok(orphans)) => orphans,
            Ok(Err(error)) => {
                tracing::debug!(%error, "jobs of processes that have ended can't be looked for");
                continue;
            }
            Err(_) => return,
        };
        let is_due = |record: &Record| !record.durable || (shared.adopts && !may_be_finished(record));
        for record in orphans.into_iter().filter(is_due) {
            take_over(&shared, &storing, record).await;
        }
    }
}

/// Whether its start was interrupted so recently that a retry with its key may still finish it. Adopted now, it would be lost.
fn may_be_finished(record: &Record) -> bool {
    let age = Duration::from_millis(wall_now().saturating_sub(record.started_at));
    record.key.is_some() && !record.is_running && age < ASKED_AGAIN
}

/// Goes on with a durable job that nobody follows, when somebody asks for it.
pub(super) async fn adopt_if_orphan(shared: &Arc<Shared>, id: &JobId) {
    let Some(storing) = shared.storing.clone() else { return };
    let (store, id) = (Arc::clone(&storing.store), id.clone());
    let orphan = spawn_blocking(move || {
        let record = store.get(&id)?;
        Ok::<_, StoreError>(record.filter(|record| {
            let is_left = record.owner != store.own_name() && store.owner(&record.owner).is_none();
            record.durable && record.outcome.is_none() && is_left
        }))
    });
    if let Ok(Ok(Some(record))) = orphan.await {
        take_over(shared, &storing, record).await;
    }
}

async fn take_over(shared: &Arc<Shared>, storing: &Arc<Storing>, record: Record) {
    let (store, limits) = (Arc::clone(&storing.store), shared.limits);
    let id = record.id.clone();
    let taken = spawn_blocking(move || {
        if !store.claim(&record)? {
            // Another process was faster.
            return Ok(None);
        }
        if record.durable {
            return resume(&*store, record, (limits.ring(Pace::Free), limits.log()));
        }
        tracing::info!(job = %record.id, "its process has ended: the job is lost");
        close(&*store, record, limits.log()).map(|()| None)
    });
    match taken.await {
        Ok(Ok(Some(Resumed { job, log, writer, record, positions }))) => {
            tracing::info!(job = %job.id, "its process has ended: the job is followed from here");
            let had_secrets = record.had_secrets;
            let key = record.key.clone().map(|key| (record.caller.clone(), key));
            lock(&shared.registry).adopt(Arc::clone(&job), key, record.machine.clone());
            storing.keep_on((&job, log), writer, record);
            shared.elsewhere.forget(&job.id);
            if job.fleet.is_some() {
                // When nobody takes it, the runner is gone.
                shared.fleets.send((job, had_secrets)).await.ok();
            } else {
                resume_durable(shared, &job, positions);
            }
        }
        Ok(Ok(None)) | Err(_) => {}
        Ok(Err(error)) => tracing::warn!(job = %id, %error, "a job can't be taken over"),
    }
}
