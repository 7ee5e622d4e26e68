//! The four steps of a start in order, and the timeout of the caller.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::launch::launch;
use super::register::find_earlier_job;
use super::reserve::{Reserved, SlotReservation, reserve};
use super::send_command::EXEC_TIMEOUT;
use crate::admission::{Permit, Start};
use crate::runner::state::{RunnerState, SpawnError, StartOrder, chain};
use sshjobs_job::{ExecPlan, Job, Outcome, Phase};

/// Starts a job in a task of the runner, so that the outcome is recorded and the permit settled even if
/// the caller is gone. Implements [`Runner::spawn`](crate::runner::api::Runner::spawn).
///
/// Dropping this future cancels the start if the command was not sent yet.
pub(crate) async fn spawn(
    shared: &Arc<RunnerState>,
    permit: Permit<Start>,
    order: StartOrder,
    timeout: Duration,
) -> Result<Arc<Job>, SpawnError> {
    let caller_gone = CancellationToken::new();
    let caller_waits = caller_gone.clone().drop_guard();
    let (sender, receiver) = oneshot::channel();
    let starting = {
        let shared = Arc::clone(shared);
        async move {
            let permit = permit.begin();
            let started = start(&shared, order, timeout, &caller_gone).await;
            match &started {
                Ok(job) => permit.commit(job).await,
                Err(error) => permit.fail(&chain(error), error.has_started_nothing()).await,
            }
            // Fails if the caller is gone: the result is not needed then.
            drop(sender.send(started));
        }
    };
    shared.spawn_task(starting);
    let started = receiver.await.unwrap_or(Err(SpawnError::ShuttingDown));
    caller_waits.disarm();
    started
}

/// Starts a member of a fleet, whose permit is that of the fleet.
///
/// Dropping this future cancels the start if the command was not sent yet.
pub(crate) async fn spawn_member(
    shared: &Arc<RunnerState>,
    order: StartOrder,
    timeout: Duration,
) -> Result<Arc<Job>, SpawnError> {
    start(shared, order, timeout, &CancellationToken::new()).await
}

/// Starts a job unless its caller goes away before the command was sent.
async fn start(
    shared: &Arc<RunnerState>,
    mut order: StartOrder,
    timeout: Duration,
    caller_gone: &CancellationToken,
) -> Result<Arc<Job>, SpawnError> {
    ExecPlan::check(&order.spec)?;
    let deadline = Instant::now() + timeout;

    let mut reservation = loop {
        match reserve(shared, order)? {
            Reserved::New(reservation) => break *reservation,
            Reserved::KeyInUse { job, order: unused } => {
                let started = unless_gone(caller_gone, wait_until_started(&job, deadline)).await?;
                if shared.registry().is_known(&job.id) {
                    return started.map(|()| job);
                }
                // The other call failed before its job was visible, and the key is free again.
                order = *unused;
            }
        }
    };

    reservation.register();
    let registered = unless_gone(caller_gone, async {
        let earlier = reservation.earlier_record().await;
        if earlier.is_none() {
            reservation.wait_for_host().await?;
        }
        Ok(earlier)
    });
    match registered.await.flatten() {
        Ok(None) => {}
        Ok(Some(record)) => return find_earlier_job(shared, reservation, &record).await,
        Err(error) => {
            reservation.fail(&error);
            return Err(error);
        }
    }

    let job = launch_in_task(shared, reservation, deadline, caller_gone).await?;
    if let Some(storing) = &shared.storing {
        // Other processes see the started job now, and not up to a second later.
        storing.touch(&job.id);
    }
    Ok(job)
}

/// Waits for a step of a start that sends nothing to the host.
///
/// # Errors
/// The caller has gone away.
async fn unless_gone<T>(
    caller_gone: &CancellationToken,
    step: impl Future<Output = T>,
) -> Result<T, SpawnError> {
    caller_gone.run_until_cancelled(step).await.ok_or(SpawnError::Abandoned)
}

/// Launches a job in a task of its own, which continues after the deadline.
async fn launch_in_task(
    shared: &Arc<RunnerState>,
    reservation: SlotReservation,
    deadline: Instant,
    caller_gone: &CancellationToken,
) -> Result<Arc<Job>, SpawnError> {
    let job = Arc::clone(&reservation.job);
    let abandoned = reservation.abandoned.clone();
    // Cancels also when this function returns the job: the launch is past its last check then.
    let abandon = abandoned.clone().drop_guard();

    let (sender, receiver) = oneshot::channel();
    let launching = launch(Arc::clone(shared), reservation);
    // Fails if the deadline has passed: the job has the result.
    shared.spawn_task(async move { drop(sender.send(launching.await)) });
    let mut launched = receiver.map(|result| result.unwrap_or(Err(SpawnError::ShuttingDown)));

    let launch_in_time = async {
        if must_wait(&job, deadline).await {
            // Its turn may come in hours, so its launch is not waited for.
            (&mut launched).now_or_never()
        } else {
            timeout_at(deadline, &mut launched).await.ok()
        }
    };
    let launch = match caller_gone.run_until_cancelled(launch_in_time).await {
        // The caller gets the id of a job that may still fail, so that its end must stay visible.
        Some(None) if shared.registry().mark_visible(&job.id) => {
            abandon.disarm();
            return Ok(job);
        }
        // The launch has failed just now.
        Some(None) => launched.await,
        Some(Some(launch)) => launch,
        // The caller is gone. A command that was sent already continues.
        None => {
            abandoned.cancel();
            launched.await
        }
    };
    let may_be_refused_later = job.spec.may_wait();
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
    if !job.spec.may_wait() {
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
