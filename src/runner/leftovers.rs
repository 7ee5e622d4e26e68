use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::open_stored::{Opened, open};
use super::shared::Shared;
use super::signal_tree::{SignalReport, kill};
use super::storing::Storing;
use crate::job::{JobId, Pace, Reach, Signal};
use crate::store::{Filter, Record, StoreError};

/// Interval at which lost jobs are looked for that may still run.
const LOOK: Duration = Duration::from_secs(2);
/// Most lost jobs that are looked at.
const MOST: usize = 1000;

/// Ends what attached jobs of processes that were killed have left running, once their host is reached, by whichever caller. It is
/// found by the jobs' mark, and only on the machine on which they ran.
pub(super) async fn end_leftovers(shared: Arc<Shared>) {
    let Some(storing) = shared.storing.clone() else { return };
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if shared.hosts.pool().is_empty() {
            continue;
        }
        for record in lost(&storing).await {
            if shared.hosts.pool().is_reached(&record.host) {
                end(&shared, &storing, record).await;
            }
        }
    }
}

fn filter() -> Filter {
    Filter { state: Some("lost"), limit: MOST, members: true, ..Filter::default() }
}

async fn lost(storing: &Storing) -> Vec<Record> {
    let (store, filter) = (Arc::clone(&storing.store), filter());
    let listed = spawn_blocking(move || store.list(&filter)).await;
    let (records, _) = listed.ok().and_then(Result::ok).unwrap_or_default();
    records.into_iter().filter(|record| record.has_leftovers).collect()
}

async fn end(shared: &Arc<Shared>, storing: &Storing, record: Record) {
    let (store, id) = (Arc::clone(&storing.store), record.id.clone());
    let limits = (shared.limits.ring(Pace::Free), shared.limits.log());
    let opened = spawn_blocking(move || open(&*store, &id, limits)).await;
    let Ok(Ok(Some(Opened { job, record, .. }))) = opened else { return };
    let (job, _) = shared.elsewhere.take_in(job, record);
    let grace = Some(shared.limits.kill_grace());
    match kill(shared, &job, Reach::Marked, (Signal::TERM, grace)).await {
        Ok(SignalReport { confirmed_dead: true, .. }) => {
            tracing::info!(job = %job.id, "what it had left running was ended");
            settle(storing, &job.id).await;
        }
        Ok(report) => tracing::debug!(job = %job.id, ?report, "what it has left is not verified dead"),
        // Another machine, or another start of it: nothing of the job can be there.
        Err(error) => tracing::debug!(job = %job.id, %error, "what it has left can't be ended"),
    }
}

async fn settle(storing: &Storing, id: &JobId) {
    let (store, id) = (Arc::clone(&storing.store), id.clone());
    let settled = spawn_blocking(move || {
        let Some(record) = store.get(&id)? else { return Ok(()) };
        store.put(&[Record { has_leftovers: false, ..record }])
    });
    let settled: Result<Result<(), StoreError>, _> = settled.await;
    if let Ok(Err(error)) = settled {
        tracing::debug!(%error, "a record could not be brought up to date");
    }
}
