//! Waits until a job may start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::wait_for_gpus::wait_for_gpus;
use crate::runner::foreign::lookup;
use crate::runner::state::{
    Lookup, MissingGpus, QueueMember, QueueRule, QueueTurn, RunnerState, SpawnError,
};
use sshjobs_job::{Job, JobId, Outcome, Phase, Scope};

/// Why a job is queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The end of another job.
    Job(JobId),
    /// The ends of this many jobs ahead of it in a queue.
    Queue {
        /// Name of the queue.
        name: String,
        /// Number of jobs.
        ahead: usize,
    },
    /// Its release: a person holds it.
    Release,
    /// The release of this queue: a person holds it.
    ReleaseOfQueue(String),
    /// GPUs of its host.
    Gpus(MissingGpus),
}

impl WaitsFor {
    /// The place in a queue: 1 is the next job to start.
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::Queue { ahead, .. } => Some(*ahead),
            Self::Job(_) | Self::Release | Self::ReleaseOfQueue(_) | Self::Gpus(_) => None,
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "waits for the end of {}", id.as_str()),
            Self::Queue { name, ahead: 1 } => write!(f, "is next in the queue {name}"),
            Self::Queue { name, ahead } => write!(f, "is number {ahead} in the queue {name}"),
            Self::Release => write!(f, "is held"),
            Self::Gpus(missing) => missing.fmt(f),
            Self::ReleaseOfQueue(name) => write!(f, "waits in the queue {name}, which is held"),
        }
    }
}

/// State of a job after which another one comes.
enum Earlier {
    Runs(Arc<Job>),
    Ended(Outcome),
    /// Its record was deleted.
    Gone,
}

/// Interval at which the jobs ahead are looked at, in case their process was killed.
const LOOK: Duration = Duration::from_secs(1);
/// Jobs ahead that are looked at, unless the queue runs more at a time.
const MOST_LOOKED_AT: usize = 4;

/// Waits until a job may start.
///
/// # Errors
/// Why it is not started: a job that had to succeed has failed, the queues can't be used, the job was
/// cancelled, or the program ends.
pub(crate) async fn take_turn(
    shared: &Arc<RunnerState>,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<(), SpawnError> {
    let waiting = async {
        wait_for_jobs(shared, job).await?;
        wait_in_queue(shared, job).await?;
        wait_for_gpus(shared, job).await
    };
    tokio::select! {
        // In this order: when the program ends, jobs after which this one comes seem to end, too.
        biased;
        () = shared.stopping.cancelled() => Err(SpawnError::ShuttingDown),
        () = abandoned.cancelled() => Err(SpawnError::Abandoned),
        waited = waiting => waited,
    }
}

async fn wait_for_jobs(shared: &Arc<RunnerState>, job: &Job) -> Result<(), SpawnError> {
    let turn = &job.spec.turn;
    for id in &turn.after {
        wait_for_end(shared, job, id).await;
    }
    for id in &turn.after_ok {
        let why = match wait_for_end(shared, job, id).await {
            Some(outcome) if outcome.is_success() => continue,
            Some(outcome) => outcome.to_string(),
            None => "was forgotten".to_owned(),
        };
        return Err(SpawnError::EarlierFailed {
            job: id.clone(),
            why,
        });
    }
    Ok(())
}

/// Waits for the end of an earlier job. Returns its outcome; `None` if it was forgotten.
async fn wait_for_end(shared: &Arc<RunnerState>, job: &Job, id: &JobId) -> Option<Outcome> {
    loop {
        match look(shared, id).await {
            Some(Earlier::Ended(outcome)) => return Some(outcome),
            Some(Earlier::Gone) => return None,
            // Looked for again after a while: another process may take it over.
            Some(Earlier::Runs(earlier)) => {
                job.queue();
                earlier.over_within(LOOK).await;
            }
            None => sleep(LOOK).await,
        }
    }
}

/// Looks at a job of any process. `None` if the store can't be read.
async fn look(shared: &Arc<RunnerState>, id: &JobId) -> Option<Earlier> {
    match lookup(shared, &Scope::All, id).await {
        Lookup::Found(job) => match job.status().phase {
            Phase::Ended(outcome) => Some(Earlier::Ended(outcome)),
            Phase::Queued | Phase::Starting | Phase::Running => Some(Earlier::Runs(job)),
        },
        Lookup::Expired(tombstone) => match tombstone.status.phase {
            Phase::Ended(outcome) => Some(Earlier::Ended(outcome)),
            Phase::Queued | Phase::Starting | Phase::Running => Some(Earlier::Gone),
        },
        Lookup::Unknown => Some(Earlier::Gone),
        Lookup::Unreadable(error) => {
            tracing::debug!(job = %id, %error, "a job that others wait for can't be looked at");
            None
        }
    }
}

async fn wait_in_queue(shared: &Arc<RunnerState>, job: &Job) -> Result<(), SpawnError> {
    let Some(queue) = &job.spec.turn.queue else { return Ok(()) };
    let entry = QueueMember::new(job.id.clone(), queue.clone(), job.spec.hosts().to_vec());
    let rule = shared.queue_rule(queue);
    let mut had_place = false;
    loop {
        // Again in each round: another process may have taken this job for ended.
        let id = job.id.clone();
        let joining = entry.clone();
        let joined = shared.queues.change(move |queues| {
            queues.join(joining.clone()).then(|| {
                let turn = queues.take_turn(&id, rule);
                let mut others = queues.ahead_of(&id, rule).unwrap_or_default();
                // No job waits for a held one, whose process may be gone.
                others.extend(queues.held_jobs(&joining.queue));
                (turn, others)
            })
        });
        let why = match joined.await {
            Ok(Some((Some(QueueTurn::Now), _))) => return Ok(()),
            Ok(Some((_, others))) => {
                had_place = true;
                job.queue();
                wait_for_one_of(shared, &others, rule).await;
                continue;
            }
            Ok(None) if had_place => "too many jobs are in queues".to_owned(),
            Ok(None) => {
                return Err(SpawnError::Queue("too many jobs are in queues".to_owned()));
            }
            Err(error) => {
                // Its caller gets the id now, and a job that was accepted must not fail because of one read.
                job.queue();
                error.to_string()
            }
        };
        tracing::warn!(job = job.id.as_str(), "the queues can't be used now: {why}");
        sleep(LOOK).await;
    }
}

/// Takes ended jobs out of their queue. If there are none, waits a while for the first one to end.
async fn wait_for_one_of(shared: &Arc<RunnerState>, ahead: &[JobId], rule: QueueRule) {
    let mut running = None;
    let mut is_any_over = false;
    // The others wait themselves, and are looked at when they have moved up.
    for id in ahead.iter().take(rule.parallel.max(MOST_LOOKED_AT)) {
        match look(shared, id).await {
            Some(Earlier::Runs(job)) => {
                running.get_or_insert(job);
            }
            Some(Earlier::Ended(_) | Earlier::Gone) => {
                is_any_over = true;
                shared.leave_queue(id).await;
            }
            None => {}
        }
    }
    if is_any_over {
        return;
    }
    match running {
        Some(job) => {
            job.over_within(LOOK).await;
        }
        None => sleep(LOOK).await,
    }
}

/// The reason for which a job is queued now. `None` if it may start.
pub(crate) async fn waits_for(shared: &Arc<RunnerState>, job: &Job) -> Option<WaitsFor> {
    let turn = &job.spec.turn;
    for id in turn.after.iter().chain(&turn.after_ok) {
        if let Some(Earlier::Runs(_)) = look(shared, id).await {
            return Some(WaitsFor::Job(id.clone()));
        }
    }
    if let Some(name) = turn.queue.clone() {
        let queues = shared.queues.read().await.ok()?;
        match queues.turn_of(&job.id, shared.queue_rule(&name)) {
            Some(QueueTurn::Behind(ahead)) => return Some(WaitsFor::Queue { name, ahead }),
            Some(QueueTurn::JobHeld) => return Some(WaitsFor::Release),
            Some(QueueTurn::QueueHeld) => return Some(WaitsFor::ReleaseOfQueue(name)),
            Some(QueueTurn::Now) | None => {}
        }
    }
    let request = job.spec.gpus.as_ref()?;
    Some(WaitsFor::Gpus(MissingGpus {
        needed: request.count,
        fitting: job.status().evidence.fitting_gpus,
        host: job.spec.host.clone(),
    }))
}
