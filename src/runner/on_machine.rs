use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::{SignalError, SpawnError};
use crate::hosts::{HostRef, Link, PoolError, run_short};
use crate::job::{Job, LoginShell, MachineId};
use crate::ssh::{ChannelError, ConnectError};

/// Silence after which a connection gets a keepalive before a signal is sent over it: noticing early that it is gone is worth
/// a round trip.
pub(super) const BRIEF: Duration = Duration::from_secs(1);
/// Maximum new connections made to find a job's machine: several machines may answer to one name.
const MOST_NEW: usize = 3;

/// Runs a short script that is about a job, where the job runs: over its own connection, or, when that is gone, silent or held,
/// over another that leads to the same machine in the same boot. Elsewhere its process numbers mean other processes.
pub(super) async fn run_on_machine(
    shared: &Shared,
    job: &Job,
    script: impl Fn(LoginShell) -> String,
    limit: Duration,
) -> Result<String, SignalError> {
    let host = &HostRef::of(job);
    let place = shared.registry().place(&job.id);
    let place = place.or_else(|| shared.elsewhere.place(&job.id)).ok_or(SignalError::JobEnded)?;
    if let Some(link) = place.link.upgrade()
        && link.answers_after(BRIEF).await
    {
        match run_over(&link, &script, limit).await {
            // It has no place for another channel, or has just died.
            Err(ChannelError::OpenRefused | ChannelError::ConnectionLost) => {}
            asked => return asked.map_err(|source| failed(host, source)),
        }
    }
    let answer = elsewhere(shared, host, place.machine.as_ref(), (&script, limit)).await;
    if let (Err(_), Some(own)) = (&answer, place.link.upgrade().filter(|own| own.connection.is_held())) {
        // Better that output is lost than that nothing can be ended.
        job.let_go();
        own.connection.hold(false);
        return run_over(&own, &script, limit).await.map_err(|source| failed(host, source));
    }
    answer
}

async fn elsewhere(
    shared: &Shared,
    host: &HostRef,
    machine: Option<&MachineId>,
    (script, limit): (&impl Fn(LoginShell) -> String, Duration),
) -> Result<String, SignalError> {
    let other = |why| SignalError::OtherMachine { host: host.name.clone(), why };
    let machine = machine.ok_or(other("does not tell which machine it is"))?;
    let unreachable =
        |error: PoolError<ConnectError>| SignalError::Unreachable(Arc::new(SpawnError::from(error)));
    let is_there = |link: &Arc<Link>| link.machine.as_ref() == Some(machine);
    for tries in 0..=MOST_NEW {
        let lease = match shared.hosts.pool().borrow(host, is_there) {
            Some(lease) if tries == 0 => lease,
            // One that is there may be used, if there is a place on it; then others are made.
            _ if tries <= 1 => shared.hosts.pool().lease(host).await.map_err(unreachable)?,
            _ => shared.hosts.pool().lease_new(host).await.map_err(unreachable)?,
        };
        if !is_there(lease.connection()) || !lease.connection().answers_after(BRIEF).await {
            continue;
        }
        match run_over(lease.connection(), script, limit).await {
            Err(ChannelError::OpenRefused | ChannelError::ConnectionLost) => {}
            asked => return asked.map_err(|source| failed(host, source)),
        }
    }
    Err(other("has been restarted, or another machine answers to its name"))
}

async fn run_over(
    link: &Link,
    script: &impl Fn(LoginShell) -> String,
    limit: Duration,
) -> Result<String, ChannelError> {
    run_short(link.open().await?.channel, &script(link.shell), limit).await
}

fn failed(host: &HostRef, source: ChannelError) -> SignalError {
    match source {
        ChannelError::TimedOut(limit) => SignalError::TimedOut(limit),
        source @ (ChannelError::OpenRefused | ChannelError::PtyRefused | ChannelError::ConnectionLost) => {
            SignalError::Unreachable(Arc::new(SpawnError::Channel { host: host.name.clone(), source }))
        }
    }
}
