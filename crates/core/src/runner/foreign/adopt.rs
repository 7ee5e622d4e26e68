//! Takes over jobs whose process has ended. A claim in the store makes sure that only one
//! process does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::open::{ForeignLog, Resumed, close, damaged, open, resume};
use crate::keeping::Storing;
use crate::runner::durable::follow_again;
use crate::runner::state::{FleetToRun, QueuedJob, RunnerState};
use sshjobs_job::{Job, JobId, Log, Pace, Phase, Positions, SecretFingerprint, wall_now};
use sshjobs_output::scrub::HiddenSecret;
use sshjobs_output::{Ring, RingLimits};
use sshjobs_store::{Record, Store, StoreError};

/// Interval at which jobs whose process has ended are searched for.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After an interrupted start, time in which a retry with the same key may still finish it.
const ASKED_AGAIN: Duration = Duration::from_secs(15);

/// Searches for jobs whose process has ended. Closes attached jobs, which are lost, and resumes
/// durable ones.
pub(crate) async fn adopt(shared: Arc<RunnerState>) {
    let Some(storing) = shared.storing.clone() else { return };
    let mut tick = interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        adopt_once(&shared, &storing).await;
    }
}

/// Takes over the jobs whose process has ended now, and those for which that has failed before.
pub(super) async fn adopt_once(shared: &Arc<RunnerState>, storing: &Arc<Storing>) {
    let _adopting = shared.foreign_jobs.adopting.lock().await;
    for id in shared.foreign_jobs.take_to_take_over() {
        take_over_again(shared, storing, id).await;
    }
    let looking = {
        let shared = Arc::clone(shared);
        storing.blocking(move |store| store.orphans(&|id| shared.registry().jobs.contains_key(id)))
    };
    let orphans = match looking.await {
        Some(Ok(orphans)) => orphans,
        Some(Err(error)) => {
            tracing::debug!(%error, "jobs of processes that have ended can't be looked for");
            return;
        }
        // The runtime is shutting down, or the search has panicked.
        None => return,
    };
    for record in orphans {
        if shared.foreign_jobs.is_leaving(&record.host) {
            continue;
        }
        let is_due = !record.durable || (shared.adopts && !may_be_finished(&record));
        if is_due {
            take_over(shared, storing, record).await;
        }
    }
}

/// Takes over a job that this process has claimed, and does not record.
async fn take_over_again(shared: &Arc<RunnerState>, storing: &Arc<Storing>, id: JobId) {
    let read = {
        let id = id.clone();
        storing.blocking(move |store| {
            let record = store.get(&id)?.filter(|record| record.outcome.is_none());
            Ok::<_, StoreError>(record.filter(|record| record.owner == store.own_name()))
        })
    };
    match read.await {
        Some(Ok(Some(record))) => take_over(shared, storing, record).await,
        // Another process has it, or it has ended.
        Some(Ok(None)) | None => {}
        Some(Err(error)) => {
            tracing::debug!(job = %id, %error, "a job can't be taken over yet");
            shared.foreign_jobs.note_to_take_over(id);
        }
    }
}

/// Whether the start was interrupted so recently that a retry with the same key may still finish
/// it. Adopting the job now would lose it.
fn may_be_finished(record: &Record) -> bool {
    let age = Duration::from_millis(wall_now().saturating_sub(record.started_at));
    record.key.is_some() && !record.is_running && age < ASKED_AGAIN
}

/// Resumes a durable job that no process follows, when a caller asks for the job.
pub(crate) async fn adopt_if_orphan(shared: &Arc<RunnerState>, id: &JobId) {
    let Some(storing) = shared.storing.clone() else { return };
    if storing.store.peers().is_some_and(|peers| !peers.may_act()) {
        // The lease is not valid, and no caller should wait for NATS.
        return;
    }
    let id = id.clone();
    let orphan = storing.blocking(move |store| {
        let record = store.get(&id)?;
        Ok::<_, StoreError>(record.filter(|record| {
            let is_left = record.owner != store.own_name() && store.owner(&record.owner).is_none();
            record.durable && record.outcome.is_none() && is_left
        }))
    });
    if let Some(Ok(Some(record))) = orphan.await {
        // In a task: a caller that goes away must not leave a claimed job without a process.
        let (taken, is_taken) = oneshot::channel();
        let taking_over = {
            let shared = Arc::clone(shared);
            async move {
                take_over(&shared, &storing, record).await;
                // Fails if the caller is gone.
                taken.send(()).ok();
            }
        };
        shared.spawn_task(taking_over);
        // Fails only if the runner has shut down.
        is_taken.await.ok();
    }
}

/// A job that was claimed.
enum Adoption {
    /// It runs.
    Resumed(Box<Resumed>),
    /// It waits for its turn.
    Queued(Box<QueuedJob>),
    /// It was attached, and is lost.
    Closed(Arc<Job>),
}

pub(super) async fn take_over(shared: &Arc<RunnerState>, storing: &Arc<Storing>, record: Record) {
    let limits = shared.limits;
    let id = record.id.clone();
    // Before the claim: after it, a caller that goes away must not leave the job without a process.
    let secrets = if record.durable && !record.is_launched_again() {
        read_secrets(shared, &record).await
    } else {
        Ok(Vec::new())
    };
    let secrets = match secrets {
        Err(why) if can_be_left(storing, &record) => {
            follow_unclaimed(shared, storing, id, why).await;
            return;
        }
        secrets => secrets,
    };
    let taken = storing.blocking(move |store| {
        if !store.claim(&record)? {
            // Another process was faster.
            return Ok(None);
        }
        if record.is_launched_again() {
            return claim_queued(store, record, limits.ring(Pace::Free)).map(Some);
        }
        if record.durable {
            return resume(store, record, limits.ring(Pace::Free), limits.log())
                .map(|resumed| resumed.map(|resumed| Adoption::Resumed(Box::new(resumed))));
        }
        tracing::info!(job = %record.id, "its process has ended: the job is lost");
        let id = record.id.clone();
        close(store, record, limits.log())?;
        let closed = open(store, &id, limits.ring(Pace::Free), limits.log())?;
        Ok(closed.map(|closed| Adoption::Closed(closed.job)))
    });
    match taken.await {
        Some(Ok(Some(Adoption::Closed(job)))) => {
            if let Phase::Ended(outcome) = job.status().phase {
                shared.observer.note_end(&job, &outcome);
            }
            shared.leave_queue_later(&job);
        }
        Some(Ok(Some(Adoption::Queued(queued)))) => queue_again(shared, *queued).await,
        Some(Ok(Some(Adoption::Resumed(resumed)))) => {
            follow_resumed(shared, storing, *resumed, secrets).await;
        }
        Some(Ok(None)) | None => {}
        Some(Err(error)) => {
            tracing::warn!(job = %id, %error, "a job can't be taken over yet");
            // It may be claimed already, so that no other process would take it over.
            shared.foreign_jobs.note_to_take_over(id);
        }
    }
}

/// Whether a job need not be claimed to be followed, so that another process can still take it over.
fn can_be_left(storing: &Storing, record: &Record) -> bool {
    // In a cluster only the replica that holds the host could take it over later.
    let is_shared = storing.store.peers().is_some();
    // A fleet has no output on a host of its own: its members have.
    let is_fleet = record.fleet.is_some();
    let is_ours = record.owner == storing.store.own_name();
    !is_shared && !is_fleet && !is_ours
}

/// Waits for the end of a durable job whose secrets can't be hidden here. Shows and stores none of its output. Does not claim
/// the job, so that a process that has the secrets can still take it over, with all of its output.
async fn follow_unclaimed(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    id: JobId,
    why: String,
) {
    let ring = shared.limits.ring(Pace::Free);
    let log_limits = shared.limits.log();
    let opening = {
        let id = id.clone();
        storing.blocking(move |store| open(store, &id, ring, log_limits))
    };
    let ForeignLog { job, record, .. } = match opening.await {
        Some(Ok(Some(opened))) => opened,
        Some(Ok(None)) | None => return,
        Some(Err(error)) => {
            tracing::debug!(job = %id, %error, "a job can't be opened");
            return;
        }
    };
    if job.has_ended() {
        return;
    }
    {
        let mut registry = shared.registry();
        // Without a claim, two calls could both get here. Only the first one follows the job.
        if registry.is_known(&id) {
            return;
        }
        let key = record.key.clone().map(|key| (record.caller.clone(), key));
        registry.adopt(Arc::clone(&job), key, record.machine.clone());
    }
    shared.foreign_jobs.forget(&id);
    let positions = hide_again(&job, Err(why));
    follow_again(shared, &job, positions);
}

/// Launches a job here that another process has left in its queue.
async fn queue_again(shared: &RunnerState, queued: QueuedJob) {
    let QueuedJob { job, record, .. } = &queued;
    if shared.registry().is_known(&job.id) {
        // It was claimed twice, and waits here already.
        return;
    }
    tracing::info!(job = %job.id, "its process has ended: the job waits here for its turn");
    let key = record.key.clone().map(|key| (record.caller.clone(), key));
    // Registered here before it is forgotten there, so that a lookup always finds the job.
    let abandoned = shared.registry().adopt(Arc::clone(job), key, None);
    shared.foreign_jobs.forget(&job.id);
    let queued = QueuedJob {
        abandoned,
        ..queued
    };
    // Fails only if the runner has shut down.
    shared.queued.send(queued).await.ok();
}

/// Follows and records a durable job here, or continues the roll-out of a fleet.
async fn follow_resumed(
    shared: &Arc<RunnerState>,
    storing: &Arc<Storing>,
    resumed: Resumed,
    secrets: Result<Vec<HiddenSecret>, String>,
) {
    let Resumed {
        job,
        log,
        writer,
        record,
        positions,
    } = resumed;
    tracing::info!(job = %job.id, "its process has ended: the job is followed from here");
    let had_secrets = record.had_secrets;
    let positions = match secrets {
        _ if job.fleet.is_some() => positions,
        Ok(secrets) if secrets.is_empty() => positions,
        secrets => hide_again(&job, secrets),
    };
    let key = record.key.clone().map(|key| (record.caller.clone(), key));
    // Registered here before it is forgotten there, so that a lookup always finds the job.
    shared.registry().adopt(Arc::clone(&job), key, record.machine.clone());
    // Before the job is followed: output that is recorded earlier would not be stored.
    storing.keep_on(&job, log, writer, record);
    shared.foreign_jobs.forget(&job.id);
    if job.fleet.is_none() {
        follow_again(shared, &job, positions);
        return;
    }
    let (is_running, running) = oneshot::channel();
    let fleet = FleetToRun {
        job,
        lacks_secrets: had_secrets,
        is_running,
    };
    // Both fail only if the runner has shut down. Until the fleet runs here, a caller would take it for
    // ended.
    shared.fleets.send(fleet).await.ok();
    running.await.ok();
}

fn claim_queued(
    store: &dyn Store,
    record: Record,
    limits: RingLimits,
) -> Result<Adoption, StoreError> {
    let spec = record.spec().map_err(|error| damaged(&record.id, &error))?;
    let log = Log::resumed(Ring::new(limits), record.past());
    Ok(Adoption::Queued(Box::new(QueuedJob {
        job: Arc::new(Job::begun(record.identity(), spec, log)),
        record: Record {
            owner: store.own_name().to_owned(),
            ..record
        },
        abandoned: CancellationToken::new(),
    })))
}

/// Reads the secrets that the output of a job must not show.
///
/// # Errors
/// Why they can't be hidden, in words.
async fn read_secrets(shared: &RunnerState, record: &Record) -> Result<Vec<HiddenSecret>, String> {
    let key = shared.registry().secret;
    let mut secrets = Vec::new();
    for fingerprint in &record.hidden_secrets {
        let name = &fingerprint.name;
        let value = shared.secrets.read(name).await;
        let value = value.map_err(|why| format!("the secret {name} can't be read here: {why}"))?;
        let secret = HiddenSecret::new(name.as_str(), value);
        if SecretFingerprint::of(&secret, &key) != *fingerprint {
            return Err(format!(
                "the secret {name} was changed after the job had started"
            ));
        }
        secrets.push(secret);
    }
    Ok(secrets)
}

/// Hides the secrets of a job that was followed by another process, and returns the offsets from which
/// the host must send the output.
///
/// The store has scrubbed output, whose length differs from that of the output on the host. So the
/// output is read from its start and scrubbed again, which gives output of the same length.
fn hide_again(job: &Job, secrets: Result<Vec<HiddenSecret>, String>) -> Positions {
    job.expect_known_output();
    match secrets {
        Ok(secrets) => secrets.iter().for_each(|secret| job.hide_secret(secret)),
        Err(why) => {
            tracing::warn!(job = %job.id, "output is withheld: {why}");
            job.withhold_output(format!("output is withheld: {why}"));
        }
    }
    Positions::default()
}
