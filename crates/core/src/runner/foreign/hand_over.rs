//! Hands hosts over to other replicas of a cluster, with their durable jobs: all of them before this
//! process ends, and some of them when a replica has come that should hold them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::mirror::mirror;
use super::open::unreadable;
use crate::hosts::HostRef;
use crate::keeping::{FLUSH_TO_END, Storing};
use crate::runner::state::RunnerState;
use sshjobs_job::{FarEvent, Job, Pace};
use sshjobs_store::{Peers, Record, StoreError, StoredEnd, StoredLog};

/// Interval at which hosts that another replica should hold are searched for.
const BALANCE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum hosts handed over in one round, so that their jobs don't all pause at once.
const HOSTS_IN_A_ROUND: usize = 16;
/// Time limit for the output of a job that has arrived to be recorded.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// Time limit for the output of a job to be stored: while this process stays, and before it ends.
const STORE_TIME: Duration = Duration::from_secs(30);
const LAST_STORE_TIME: Duration = Duration::from_secs(5);

/// Hands over hosts that another replica should hold, as long as this process runs.
pub(crate) async fn balance(shared: Arc<RunnerState>) {
    let Some(peers) = peers(&shared) else { return };
    let mut tick = interval(BALANCE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if peers.may_act() {
            hand_over_hosts(&shared, &peers, HOSTS_IN_A_ROUND, STORE_TIME).await;
        }
    }
}

/// Hands over all hosts, because this process will end. Hosts with attached jobs are handed over once
/// these have ended, at most after `drain`.
pub(crate) async fn hand_over_all(shared: &Arc<RunnerState>, drain: Duration) {
    let Some(peers) = peers(shared) else { return };
    if let Err(error) = peers.prepare_to_leave().await {
        tracing::warn!(%error, "the hosts can't be handed over");
        return;
    }
    hand_over_hosts(shared, &peers, usize::MAX, LAST_STORE_TIME).await;
    let mut changes = shared.registry().changes.subscribe();
    let ending = async {
        while has_attached(shared) {
            // Changes with the end of every job. The sender is in `shared`.
            changes.changed().await.ok();
            hand_over_hosts(shared, &peers, usize::MAX, LAST_STORE_TIME).await;
        }
    };
    if timeout(drain, ending).await.is_err() {
        tracing::info!("attached jobs did not end in time, and are ended");
    }
}

fn has_attached(shared: &RunnerState) -> bool {
    shared.registry().running().any(|job: &Arc<Job>| !job.spec.durable)
}

fn peers(shared: &RunnerState) -> Option<Arc<dyn Peers>> {
    shared.storing.as_ref()?.store.peers()
}

async fn hand_over_hosts(
    shared: &Arc<RunnerState>,
    peers: &Arc<dyn Peers>,
    most: usize,
    store_time: Duration,
) {
    let Some(storing) = &shared.storing else { return };
    let mut misplaced = peers.misplaced_hosts();
    misplaced.retain(|host| !has_attached_jobs(shared, host));
    misplaced.truncate(most);
    for host in misplaced {
        let handing_over = HandOver {
            host: &host,
            to: None,
            store_time,
        };
        if let Err(error) = hand_over(shared, storing, &**peers, handing_over).await {
            tracing::warn!(%error, host, "a host can't be handed over");
        }
    }
}

fn has_attached_jobs(shared: &RunnerState, host: &str) -> bool {
    let registry = shared.registry();
    let mut of_host = registry.running().filter(|job: &&Arc<Job>| job.spec.host == host);
    let is_starting = registry.starting().iter().any(|job| job.spec.host == host);
    is_starting || of_host.any(|job| !job.spec.durable)
}

/// Hands a host over that another replica asks for, unless it has attached jobs, which can't move.
pub(super) async fn hand_over_wanted(shared: &Arc<RunnerState>, host: &str, to: &str) {
    let (Some(peers), Some(storing)) = (peers(shared), &shared.storing) else {
        return;
    };
    let order = HandOver {
        host,
        to: Some(to),
        store_time: LAST_STORE_TIME,
    };
    if !peers.may_act() || has_attached_jobs(shared, host) {
        return;
    }
    if let Err(error) = hand_over(shared, storing, &*peers, order).await {
        tracing::warn!(%error, host, to, "a host can't be handed over");
    }
}

/// A host to hand over.
struct HandOver<'a> {
    host: &'a str,
    /// To this replica, or else to the one that should hold the host.
    to: Option<&'a str>,
    /// Time limit for the output of each job to be stored.
    store_time: Duration,
}

/// Hands over a host with its durable jobs. Their readers here read on from the store.
async fn hand_over(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    peers: &dyn Peers,
    order: HandOver<'_>,
) -> Result<(), StoreError> {
    let host = order.host;
    let _handing_over = shared.foreign_jobs.handing_over.lock().await;
    shared.foreign_jobs.begin_leaving(host);
    // After `begin_leaving`: a start either is seen here, or sees that the host is leaving.
    let handed_over = if has_attached_jobs(shared, host) {
        Ok(())
    } else {
        hand_over_jobs(shared, storing, peers, order).await
    };
    shared.foreign_jobs.end_leaving(host);
    handed_over
}

async fn hand_over_jobs(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    peers: &dyn Peers,
    order: HandOver<'_>,
) -> Result<(), StoreError> {
    let host = order.host;
    let jobs: Vec<Arc<Job>> = {
        let registry = shared.registry();
        let of_host = registry.running().filter(|job: &&Arc<Job>| job.spec.host == host);
        of_host.cloned().collect()
    };
    let given = give(shared, storing, peers, &order, &jobs).await;
    if let Ok(true) = given {
        tracing::info!(host, jobs = jobs.len(), "handed over");
        return Ok(());
    }
    // Recording has stopped, so the jobs are taken over again from the store. Output that is not
    // stored is still on the host.
    for job in jobs {
        give_up(shared, storing, &job);
        shared.foreign_jobs.note_to_take_over(job.id.clone());
    }
    given.map(drop)
}

/// Stops recording the jobs of a host, and gives the host away. Returns false if no replica takes it.
async fn give(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    peers: &dyn Peers,
    order: &HandOver<'_>,
    jobs: &[Arc<Job>],
) -> Result<bool, StoreError> {
    for job in jobs {
        stop_recording(shared, job).await;
        if !job.all_stored(order.store_time).await {
            return Err(StoreError::Records(format!(
                "the output of {} is not stored",
                job.id
            )));
        }
    }
    // The records after the output, so that they have all of it.
    storing.flush(FLUSH_TO_END).await;
    for job in jobs {
        read_on(shared, storing, job).await?;
    }
    // Last: from here on the other replica claims the jobs.
    peers.hand_over(order.host, order.to).await
}

fn give_up(shared: &RunnerState, storing: &Storing, job: &Job) {
    storing.give_up(&job.id);
    shared.registry().give_up(&job.id);
}

/// Stops recording a job, once all output that has arrived is recorded.
async fn stop_recording(shared: &RunnerState, job: &Arc<Job>) {
    if let Some(followed) = shared.followers.unfollow(&HostRef::of(job), &job.id) {
        let stopping = async {
            // Behind the output that has arrived. Fails only if the recorder has ended.
            followed.events.send(FarEvent::Detached).await.ok();
            followed.events.closed().await;
        };
        drop(timeout(LAST_EVENTS, stopping).await);
    }
}

/// Turns a job into a copy of the stored one, as the jobs of other processes are.
async fn read_on(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    job: &Arc<Job>,
) -> Result<(), StoreError> {
    let ring = shared.limits.ring(Pace::Free);
    let id = job.id.clone();
    let opened = storing.blocking(move |store| {
        let record = store.get(&id)?;
        let log = store.log(&id);
        let end = log.open(ring).map_err(unreadable)?;
        Ok::<_, StoreError>((record, log, end))
    });
    let (record, log, end): (Option<Record>, Arc<StoredLog>, StoredEnd) = match opened.await {
        Some(opened) => opened?,
        // The runtime is shutting down.
        None => return Ok(()),
    };
    give_up(shared, storing, job);
    let Some(record) = record else { return Ok(()) };
    let (_, is_new) = shared.foreign_jobs.take_in(Arc::clone(job), record);
    if !is_new {
        // It is copied already.
        return Ok(());
    }
    let mirroring = mirror(Arc::clone(shared), Arc::downgrade(job), log, end, ring);
    shared.spawn_task(mirroring);
    Ok(())
}
