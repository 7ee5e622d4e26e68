//! Runs a script on the machine of a job, over any connection that leads there.

use std::sync::Arc;
use std::time::Duration;

use crate::hosts::{HostRef, Link, PoolError, Script};
use crate::job::{Job, MachineId};
use crate::runner::state::{Shared, SignalError, SpawnError};
use crate::ssh::{ChannelError, ConnectError};

/// Silence after which a connection gets a keepalive before a signal is sent over it. Detecting a
/// dead connection early is worth a round trip.
pub(crate) const BRIEF: Duration = Duration::from_secs(1);
/// Time limit for a connection to report its machine.
const ASK_MACHINE: Duration = Duration::from_secs(10);
/// Number of further attempts to find a job's machine, the last two over new connections: several
/// machines may answer to one name.
const MOST_NEW: usize = 3;

/// Runs a short script on the machine of a job: over the job's own connection or, if that is lost,
/// silent or held, over another one to the same machine in the same boot. On another machine, its
/// process ids mean other processes.
pub(crate) async fn run_on_machine(
    shared: &Shared,
    job: &Job,
    script: Script,
    limit: Duration,
) -> Result<String, SignalError> {
    let host = &HostRef::of(job);
    let place = shared.registry().place(&job.id);
    let place = place
        .or_else(|| shared.foreign_jobs.place(&job.id))
        .ok_or(SignalError::JobEnded)?;
    if let Some(link) = place.link.upgrade()
        && link.answers_after(BRIEF).await
    {
        match run_over(&link, script.clone(), limit).await {
            // The connection has no room for another channel, or has just died.
            Err(ChannelError::OpenRefused | ChannelError::ConnectionLost) => {}
            asked => return asked.map_err(|source| failed(host, source)),
        }
    }
    let answer = elsewhere(shared, host, place.machine.as_ref(), &script, limit).await;
    if answer.is_err()
        && let Some(own) = place.link.upgrade()
        && own.connection.is_held()
    {
        // Losing output is better than being unable to end the job.
        job.stop_pacing();
        own.connection.hold(false);
        return run_over(&own, script, limit).await.map_err(|source| failed(host, source));
    }
    answer
}

async fn elsewhere(
    shared: &Shared,
    host: &HostRef,
    machine: Option<&MachineId>,
    script: &Script,
    limit: Duration,
) -> Result<String, SignalError> {
    let machine =
        machine.ok_or_else(|| other_machine(host, "it does not report which machine it is"))?;
    for tries in 0..=MOST_NEW {
        let known = shared
            .hosts
            .pool()
            .borrow(host, |link| link.machine().as_ref() == Some(machine));
        let lease = match known {
            Some(lease) if tries == 0 => lease,
            // First try a pooled connection, then open new ones.
            _ if tries <= 1 => shared.hosts.pool().lease(host).await.map_err(unreachable)?,
            _ => shared.hosts.pool().lease_new(host).await.map_err(unreachable)?,
        };
        let link = lease.connection();
        if !link.answers_after(BRIEF).await
            || link.ask_machine(ASK_MACHINE).await.as_ref() != Some(machine)
        {
            continue;
        }
        match run_over(link, script.clone(), limit).await {
            Err(ChannelError::OpenRefused | ChannelError::ConnectionLost) => {}
            asked => return asked.map_err(|source| failed(host, source)),
        }
    }
    Err(other_machine(
        host,
        "has been restarted, or another machine answers to its name",
    ))
}

fn other_machine(host: &HostRef, why: &'static str) -> SignalError {
    SignalError::OtherMachine {
        host: host.name.clone(),
        why,
    }
}

/// The output of the script. Empty if the host has no shell to run it.
async fn run_over(link: &Link, script: Script, limit: Duration) -> Result<String, ChannelError> {
    Ok(link.run_script(script, limit).await?.unwrap_or_default())
}

fn failed(host: &HostRef, source: ChannelError) -> SignalError {
    match source {
        ChannelError::TimedOut(limit) => SignalError::TimedOut(limit),
        source @ (ChannelError::OpenRefused
        | ChannelError::PtyRefused
        | ChannelError::ConnectionLost) => {
            SignalError::Unreachable(Arc::new(SpawnError::Channel {
                host: host.name.clone(),
                source,
            }))
        }
    }
}

fn unreachable(error: PoolError<ConnectError>) -> SignalError {
    SignalError::Unreachable(Arc::new(SpawnError::from(error)))
}
