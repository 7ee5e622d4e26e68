//! Runs a script on the machine of a job, over any connection that leads there.

use std::sync::Arc;
use std::time::Duration;

use crate::hosts::{
    Asking, ExecAsError, GateLogin, HostRef, Link, PoolError, Script, feed_started,
};
use crate::runner::state::{RunnerState, SignalError, SpawnError};
use sshjobs_job::{Become, Job, MachineId};
use sshjobs_ssh::{ChannelError, ConnectError};

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
    shared: &RunnerState,
    job: &Job,
    script: Script,
    limit: Duration,
) -> Result<String, SignalError> {
    let errand = Errand {
        script,
        user: None,
        limit,
    };
    run_errand(shared, job, &errand).await
}

/// Like [`run_on_machine`], as another user of the host. The script takes no input.
pub(crate) async fn run_on_machine_as(
    shared: &RunnerState,
    job: &Job,
    user: OtherUser<'_>,
    script: String,
    limit: Duration,
) -> Result<String, SignalError> {
    let errand = Errand {
        script: Script::without_input(script),
        user: Some(user),
        limit,
    };
    run_errand(shared, job, &errand).await
}

/// Another user who runs a script.
#[derive(Clone, Copy)]
pub(crate) struct OtherUser<'a> {
    pub(crate) becomes: &'a Become,
    pub(crate) asking: Asking<'static>,
}

/// A script to run on a machine.
struct Errand<'a> {
    script: Script,
    /// Another user than the account.
    user: Option<OtherUser<'a>>,
    /// Time limit.
    limit: Duration,
}

async fn run_errand(
    shared: &RunnerState,
    job: &Job,
    errand: &Errand<'_>,
) -> Result<String, SignalError> {
    let host = &HostRef::of(job);
    let place = shared.registry().place(&job.id);
    let place = place
        .or_else(|| shared.foreign_jobs.place(&job.id))
        .ok_or(SignalError::JobEnded)?;
    if let Some(link) = place.link.upgrade()
        && link.answers_after(BRIEF).await
    {
        match run_over(shared, host, &link, errand).await {
            // The connection has no room for another channel, or has just died.
            Err(ExecAsError::Channel(ChannelError::OpenRefused | ChannelError::ConnectionLost)) => {
            }
            asked => return asked.map_err(|source| failed(host, source)),
        }
    }
    let answer = elsewhere(shared, host, place.machine.as_ref(), errand).await;
    if answer.is_err()
        && let Some(own) = place.link.upgrade()
        && own.connection.is_held()
    {
        // Losing output is better than being unable to end the job.
        job.stop_pacing();
        own.connection.hold(false);
        let asked = run_over(shared, host, &own, errand).await;
        return asked.map_err(|source| failed(host, source));
    }
    answer
}

async fn elsewhere(
    shared: &RunnerState,
    host: &HostRef,
    machine: Option<&MachineId>,
    errand: &Errand<'_>,
) -> Result<String, SignalError> {
    let machine =
        machine.ok_or_else(|| other_machine(host, "does not report which machine it is"))?;
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
        match run_over(shared, host, link, errand).await {
            Err(ExecAsError::Channel(ChannelError::OpenRefused | ChannelError::ConnectionLost)) => {
            }
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
async fn run_over(
    shared: &RunnerState,
    host: &HostRef,
    link: &Link,
    errand: &Errand<'_>,
) -> Result<String, ExecAsError> {
    if let Some(user) = errand.user {
        let login = GateLogin {
            host,
            link,
            asking: user.asking,
        };
        return run_as(shared, login, user.becomes, errand).await;
    }
    let printed = link.run_script(errand.script.clone(), errand.limit).await?;
    Ok(printed.unwrap_or_default())
}

/// The output of a script that another user runs, on a channel of its own.
async fn run_as(
    shared: &RunnerState,
    login: GateLogin<'_>,
    becomes: &Become,
    errand: &Errand<'_>,
) -> Result<String, ExecAsError> {
    let script = &errand.script.text;
    let channel = login.link.open().await?.channel;
    let (reader, writer) = shared.hosts.exec_as(login, becomes, channel, script).await?;
    // Closes the channel when the limit has passed.
    let printed = feed_started(reader, writer, Vec::new().into(), errand.limit).await?;
    Ok(printed.stdout)
}

fn failed(host: &HostRef, error: ExecAsError) -> SignalError {
    match error {
        ExecAsError::Become(error) => SignalError::Become(error),
        ExecAsError::Channel(ChannelError::TimedOut(limit)) => SignalError::TimedOut(limit),
        ExecAsError::Channel(
            source @ (ChannelError::OpenRefused
            | ChannelError::PtyRefused
            | ChannelError::ConnectionLost
            | ChannelError::NoGreeting(_)
            | ChannelError::Silent),
        ) => SignalError::Unreachable(Arc::new(SpawnError::Channel {
            host: host.name.clone(),
            source,
        })),
    }
}

fn unreachable(error: PoolError<ConnectError>) -> SignalError {
    SignalError::Unreachable(Arc::new(SpawnError::from(error)))
}
