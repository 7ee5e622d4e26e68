//! The four steps of a start in order, and the timeout of the caller.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::launch::launch;
use super::register::find_earlier_job;
use super::reserve::{Reserved, SlotReservation, reserve};
use super::send_command::EXEC_TIMEOUT;
use crate::runner::state::{RunnerState, SpawnError, StartOrder};
use sshjobs_job::{ExecPlan, Job, Outcome, Phase};

/// Starts a job. Implements [`Runner::spawn`](crate::runner::api::Runner::spawn).
pub(crate) async fn spawn(
    shared: &Arc<RunnerState>,
    mut order: StartOrder,
    timeout: Duration,
) -> Result<Arc<Job>, SpawnError> {
    ExecPlan::check(&order.spec)?;
    let deadline = Instant::now() + timeout;

    let mut reservation = loop {
        match reserve(shared, order)? {
            Reserved::New(reservation) => break *reservation,
            Reserved::KeyInUse { job, order: unused } => {
                let started = wait_until_started(&job, deadline).await;
                if shared.registry().is_known(&job.id) {
                    return started.map(|()| job);
                }
                // The other call failed before its job was visible, and the key is free again.
                order = *unused;
            }
        }
    };

    reservation.register();
    if let Some(record) = reservation.earlier_record().await {
        return find_earlier_job(shared, reservation, &record).await;
    }

    if let Err(error) = reservation.wait_for_host().await {
        reservation.fail(&error);
        return Err(error);
    }

    let job = launch_in_task(shared, reservation, deadline).await?;
    if let Some(storing) = &shared.storing {
        // Other processes see the started job now, and not up to a second later.
        storing.touch(&job.id);
    }
    Ok(job)
}

/// Launches a job in a task of the runner, so that a command that was sent is recorded even if the
/// caller is gone.
///
/// Dropping this future cancels the launch if the command was not sent yet.
async fn launch_in_task(
    shared: &Arc<RunnerState>,
    reservation: SlotReservation,
    deadline: Instant,
) -> Result<Arc<Job>, SpawnError> {
    let job = Arc::clone(&reservation.job);
    // Cancels also when this function returns the job: the launch is past its last check then.
    let abandon = reservation.abandoned.clone().drop_guard();

    let (sender, receiver) = oneshot::channel();
    let launching = launch(Arc::clone(shared), reservation);
    // Fails if the caller is gone: the result is not needed then.
    shared.spawn_task(async move { drop(sender.send(launching.await)) });
    let mut launched = receiver.map(|result| result.unwrap_or(Err(SpawnError::ShuttingDown)));

    let launched_in_time = if must_wait(&job, deadline).await {
        // Its turn may come in hours, so its launch is not waited for.
        (&mut launched).now_or_never()
    } else {
        timeout_at(deadline, &mut launched).await.ok()
    };
    let launch = match launched_in_time {
        // The caller gets the id of a job that may still fail, so that its end must stay visible.
        None if shared.registry().mark_visible(&job.id) => {
            abandon.disarm();
            return Ok(job);
        }
        // The launch has failed just now.
        None => launched.await,
        Some(launch) => launch,
    };
    let may_be_refused_later = !job.spec.turn.is_now();
    if launch.is_err() && may_be_refused_later && shared.registry().is_known(&job.id) {
        // Such a job is listed with the reason.
        return Ok(job);
    }
    launch?;

    wait_until_started(&job, deadline).await?;
    Ok(job)
}

/// Waits until it is known whether a job must wait for its turn.
async fn must_wait(job: &Job, deadline: Instant) -> bool {
    if job.spec.turn.is_now() {
        return false;
    }
    let patience = deadline.saturating_duration_since(Instant::now());
    let status = job.wait_for(patience, |log| *log.phase() != Phase::Starting).await;
    status.phase == Phase::Queued
}

/// Waits until the server reports that the command runs, or time is up. An error only if the server
/// refused.
pub(super) async fn wait_until_started(job: &Job, deadline: Instant) -> Result<(), SpawnError> {
    let timeout = deadline.saturating_duration_since(Instant::now()).min(EXEC_TIMEOUT);
    let status = job.wait_for(timeout, |log| log.phase().has_started()).await;

    match status.phase {
        Phase::Ended(Outcome::Refused) => {
            tracing::info!(host = job.spec.host, "exec refused");
            Err(SpawnError::ExecRefused(job.spec.host.clone()))
        }
        Phase::Queued | Phase::Starting | Phase::Running | Phase::Ended(_) => Ok(()),
    }
}
