//! Follows what other machines do to jobs: gives up those that they have removed or taken over, and
//! deletes output that they have deleted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::adopt::adopt_once;
use super::hand_over::hand_over_wanted;
use crate::hosts::HostRef;
use crate::runner::state::RunnerState;
use sshjobs_job::{Job, JobId};
use sshjobs_store::StoreEvent;

/// Pause after deleted output could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Maximum attempts to read the deleted output of a job.
const ATTEMPTS: usize = 60;

/// Handles what other machines do, if the store is shared with any.
pub(crate) async fn handle_store_events(shared: Arc<RunnerState>) {
    let Some(storing) = &shared.storing else { return };
    let Some(mut events) = storing.store.events() else { return };
    let mut taken_over = storing.taken_over();
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(StoreEvent::JobRemoved(id)) => forget(&shared, &id),
                Some(StoreEvent::OutputForgotten(id)) => {
                    let own = shared.registry().jobs.get(&id).map(|entry| Arc::clone(&entry.job));
                    let job = own.or_else(|| shared.foreign_jobs.get(&id));
                    forget_output(&shared, job.into_iter().collect());
                }
                Some(StoreEvent::Reconnected) => forget_output(&shared, all_jobs(&shared)),
                Some(StoreEvent::HostGained(_)) => adopt_once(&shared, storing).await,
                Some(StoreEvent::HostWanted { host, by }) => {
                    hand_over_wanted(&shared, &host, &by).await;
                }
                Some(StoreEvent::HostLost(host)) => give_up_host(&shared, &host),
                None => return,
            },
            Some(id) = next(&mut taken_over) => give_up_job(&shared, &id),
        }
    }
}

/// The next job whose output was refused. `None` only if the runner ends.
async fn next(taken_over: &mut Option<mpsc::Receiver<JobId>>) -> Option<JobId> {
    match taken_over {
        Some(taken_over) => taken_over.recv().await,
        None => std::future::pending().await,
    }
}

/// Forgets a finished job. A later lookup reports it as expired.
fn forget(shared: &RunnerState, id: &JobId) {
    let is_over = shared.registry().jobs.get(id).map(|entry| entry.job.is_over());
    if is_over == Some(false) {
        // It still needs its fencing token.
        return;
    }
    if is_over == Some(true) {
        shared.registry().bury(id);
    }
    shared.foreign_jobs.forget(id);
    if let Some(storing) = &shared.storing {
        storing.store.note_removed(id);
    }
}

/// All jobs that have output in the memory of this process.
fn all_jobs(shared: &RunnerState) -> Vec<Arc<Job>> {
    let mut jobs = shared.foreign_jobs.all();
    jobs.extend(shared.registry().jobs.values().map(|entry| Arc::clone(&entry.job)));
    jobs
}

/// Deletes lines of jobs that another machine has deleted, as soon as the store can be read. Gives a
/// job up after a minute: once the store can be reached again, all jobs get another attempt.
fn forget_output(shared: &RunnerState, jobs: Vec<Arc<Job>>) {
    // It reads the store, and other events must not wait for that.
    shared.spawn_task(async move {
        for job in jobs {
            for _ in 0..ATTEMPTS {
                let Err(error) = forget_deleted(Arc::clone(&job)).await else { break };
                tracing::debug!(%error, job = %job.id, "deleted output can't be read yet");
                sleep(TRY_AGAIN).await;
            }
        }
    });
}

async fn forget_deleted(job: Arc<Job>) -> io::Result<()> {
    let deleting = spawn_blocking(move || job.forget_deleted());
    deleting.await.expect("reading deleted output does not panic")
}

fn give_up_host(shared: &Arc<RunnerState>, host: &str) {
    let jobs: Vec<JobId> = {
        let registry = shared.registry();
        let of_host = registry.running().filter(|job: &&Arc<Job>| job.spec.host == host);
        of_host.map(|job| job.id.clone()).collect()
    };
    jobs.iter().for_each(|id| give_up_job(shared, id));
}

/// Stops recording a job that another machine records now. From here on readers get what that
/// machine stores.
fn give_up_job(shared: &Arc<RunnerState>, id: &JobId) {
    let (job, stdin) = {
        let mut registry = shared.registry();
        let stdin = registry.stdin(id);
        let Some(job) = registry.give_up(id) else { return };
        (job, stdin)
    };
    tracing::warn!(job = %id, "another machine has taken this job over");
    if let Some(storing) = &shared.storing {
        storing.give_up(id);
    }
    if job.spec.durable && job.fleet.is_none() {
        // Its recorder ends when nothing can send it events any more.
        drop(shared.followers.unfollow(&HostRef::of(&job), id));
        return;
    }
    // The new owner has recorded the job as lost, and ends its processes.
    if let Some(stdin) = stdin {
        shared.spawn_task(async move { drop(stdin.controls().close().await) });
    }
}
