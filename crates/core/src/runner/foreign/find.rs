//! Finds a job by its id: in this process, in another one, or in the store.

use std::sync::Arc;
use std::time::Duration;

use super::adopt::adopt_if_orphan;
use super::mirror::mirror;
use super::open::{ForeignLog, open};
use crate::keeping::Storing;
use crate::runner::state::{Lookup, RunnerState, Tombstone};
use sshjobs_job::{JobId, Pace, Scope};
use sshjobs_store::StoreError;

/// Time limit for a durable job that was just adopted to catch up with its host, which may have
/// newer output than the store.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Implements [`Runner::lookup`](crate::runner::api::Runner::lookup).
pub(crate) async fn lookup(shared: &Arc<RunnerState>, scope: &Scope, id: &JobId) -> Lookup {
    let here = lookup_here(shared, scope, id).await;
    if !matches!(here, Lookup::Unknown) {
        return here;
    }
    let Some(storing) = &shared.storing else {
        return match &shared.unstored {
            // The store may have the job.
            Some(why) => Lookup::Unreadable(why.clone()),
            None => Lookup::Unknown,
        };
    };
    adopt_if_orphan(shared, id).await;
    let here = lookup_here(shared, scope, id).await;
    if !matches!(here, Lookup::Unknown) {
        return here;
    }
    // After the adoption, which removes the job from the foreign ones.
    if let Some(job) = shared.foreign_jobs.get(id) {
        return if scope.has(&job.caller) {
            Lookup::Found(job)
        } else {
            Lookup::Unknown
        };
    }
    let removed = id.clone();
    let id = id.clone();
    let ring = shared.limits.ring(Pace::Free);
    let log = shared.limits.log();
    let opened = storing.blocking(move |store| open(store, &id, ring, log)).await;
    match opened {
        Some(Ok(Some(opened))) if scope.has(&opened.record.caller) => {
            let ForeignLog {
                job,
                record,
                log,
                end,
            } = opened;
            // The record was read before the log, so it may lack the end that the log has.
            let is_final = job.is_over() && record.outcome.is_some();
            let (job, is_new) = shared.foreign_jobs.take_in(job, record);
            if is_new && !is_final {
                // Weak, so that the mirror ends when the foreign job expires.
                let of = Arc::downgrade(&job);
                shared.spawn_task(mirror(Arc::clone(shared), of, log, end, ring));
            }
            Lookup::Found(job)
        }
        Some(Ok(Some(_))) => Lookup::Unknown,
        Some(Ok(None)) => find_tombstone(storing, scope, &removed).await,
        Some(Err(error)) => Lookup::Unreadable(error),
        None => {
            let why = "the task that reads the job from the store ended early";
            Lookup::Unreadable(StoreError::Records(why.to_owned()))
        }
    }
}

/// Searches for what is left of a job that another machine has removed.
async fn find_tombstone(storing: &Arc<Storing>, scope: &Scope, id: &JobId) -> Lookup {
    let id = id.clone();
    let record = match storing.blocking(move |store| store.tombstone(&id)).await {
        Some(Ok(record)) => record.filter(|record| scope.has(&record.caller)),
        Some(Err(error)) => return Lookup::Unreadable(error),
        // The runtime is shutting down.
        None => None,
    };
    let Some(record) = record else { return Lookup::Unknown };
    Lookup::Expired(Box::new(Tombstone {
        status: record.status(),
        id: record.id,
        caller: record.caller,
        host: record.facts.host,
    }))
}

/// Searches this process. A durable job first receives what its host has.
async fn lookup_here(shared: &RunnerState, scope: &Scope, id: &JobId) -> Lookup {
    let here = shared.registry().lookup(scope, id);
    if let Lookup::Found(job) = &here {
        job.caught_up(CATCH_UP).await;
    }
    here
}
