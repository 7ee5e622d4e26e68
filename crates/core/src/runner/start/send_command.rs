//! The command of an attached job: sent on an open channel, and sent again if the server cannot
//! have run it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::first_output::{FirstEvents, FirstWords};
use super::open_channel::{ChannelAttempts, OpenChannel};
use crate::hosts::{Asking, GateLogin, HostRef, Lease, Link};
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::{ExecPlan, Job, PlanError};
use sshjobs_ssh::{Channel, ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Time limit for the server to report whether it runs the command.
pub(super) const EXEC_TIMEOUT: Duration = Duration::from_secs(10);

/// A channel on which the command was sent.
pub(super) struct SentCommand {
    pub(super) lease: Lease<Arc<Link>>,
    pub(super) plan: ExecPlan,
    pub(super) reader: ChannelReader,
    pub(super) writer: ChannelWriter,
    /// Events that were read to check the channel, oldest first. They must be recorded before those
    /// of `reader`.
    pub(super) first_events: VecDeque<ChannelEvent>,
}

/// Result of sending a command on one channel.
enum CommandSent {
    /// The server has the command.
    Command(Box<SentCommand>),
    /// The server had closed the channel before the command could arrive.
    ChannelLost,
    /// The login shell is not the expected one and refused the command as a whole.
    OtherShell(Lease<Arc<Link>>),
}

/// Sends the command. Repeats it on another channel, or for another login shell, while it is certain
/// that no part of it ran.
pub(super) async fn send_command(
    shared: &RunnerState,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<SentCommand, SpawnError> {
    let mut attempts = ChannelAttempts::new();
    loop {
        // Nothing runs on the channel yet, so the opening can be cancelled at any point.
        let open = tokio::select! {
            () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
            open = attempts.open(shared, job) => open?,
        };

        match send_on(open, job, abandoned).await? {
            CommandSent::Command(sent) => {
                match change_user(shared, job, *sent, abandoned).await {
                    // Nothing ran, and the person is asked for another password.
                    Err(SpawnError::Become(error)) if error.may_try_another => {}
                    changed => return changed,
                }
            }
            CommandSent::ChannelLost => attempts.note_lost(),
            CommandSent::OtherShell(lease) => {
                // Once the shell is known, the next attempt fits it.
                let asked = tokio::select! {
                    () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
                    () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
                    asked = lease.connection().ask_shell() => asked,
                };
                match asked {
                    Ok(_) => {}
                    // Nothing is different on another connection.
                    Err(error @ ChannelError::Silent) => {
                        return Err(SpawnError::channel(job, error));
                    }
                    Err(_) => attempts.note_lost(),
                }
            }
        }
    }
}

async fn send_on(
    open: OpenChannel,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<CommandSent, SpawnError> {
    let OpenChannel { lease, opened } = open;
    let mut channel = opened.channel;

    let prepared = match prepare(&mut channel, job, lease.connection()).await {
        // The last moment at which the start can be abandoned: from `exec` on the server may run
        // the command.
        Ok(_) if abandoned.is_cancelled() => Err(SpawnError::Abandoned),
        prepared => prepared,
    };
    let plan = match prepared {
        Ok(plan) => plan,
        Err(error) => {
            // A lost connection has closed its channels.
            channel.close().await.ok();
            // A channel opened in advance may have been closed while it waited. Nothing ran.
            return if opened.was_spare && error.is_lost_channel() {
                Ok(CommandSent::ChannelLost)
            } else {
                Err(error)
            };
        }
    };

    let (reader, writer) = channel
        .exec(&plan.command)
        .await
        .map_err(|error| SpawnError::channel(job, error))?;
    let mut sent = SentCommand {
        lease,
        plan,
        reader,
        writer,
        first_events: VecDeque::new(),
    };
    if sent.plan.expects_greeting {
        return check_greeting(sent, job, opened.was_spare, abandoned).await;
    }
    if opened.was_spare {
        // Without an event the recorder waits for one, or reports that the connection was lost.
        timeout(EXEC_TIMEOUT, read_first_events(&mut sent)).await.ok();
        if was_closed(&sent.first_events) {
            return Ok(CommandSent::ChannelLost);
        }
    }
    Ok(CommandSent::Command(Box::new(sent)))
}

/// Reads the first event of a channel, and the next one after EOF, which may come before CLOSE.
async fn read_first_events(sent: &mut SentCommand) {
    for _ in 0..2 {
        let event = sent.reader.next().await;
        let is_eof = event == Some(ChannelEvent::Eof);
        sent.first_events.extend(event);
        if !is_eof {
            break;
        }
    }
}

/// Whether the server closed a channel that was opened in advance before the command arrived: it sends CLOSE, or EOF and CLOSE,
/// and no reply. The command did not run.
fn was_closed(events: &VecDeque<ChannelEvent>) -> bool {
    let mut others = events.iter().filter(|event| **event != ChannelEvent::Eof);
    others.next() == Some(&ChannelEvent::Close) && others.next().is_none()
}

/// Waits until a command that runs as another user has become that user.
async fn change_user(
    shared: &RunnerState,
    job: &Job,
    mut sent: SentCommand,
    abandoned: &CancellationToken,
) -> Result<SentCommand, SpawnError> {
    let Some(gate) = sent.plan.gate.take() else { return Ok(sent) };
    // The greeting was read with events that follow it.
    sent.reader.put_back(std::mem::take(&mut sent.first_events));

    let host = HostRef::of(job);
    let login = GateLogin {
        host: &host,
        link: sent.lease.connection(),
        asking: Asking::for_start_of(job),
    };
    let passing = shared.hosts.pass_gate(login, gate, &mut sent.reader, &sent.writer);
    let ended = tokio::select! {
        passed = passing => {
            passed?;
            return Ok(sent);
        }
        () = abandoned.cancelled() => SpawnError::Abandoned,
        () = shared.stopping.cancelled() => SpawnError::ShuttingDown,
    };
    // The program reads the end of its stdin instead of a password, or the other user's shell reads
    // it instead of the line on which the command starts.
    sent.writer.close().await.ok();
    Err(ended)
}

/// Reads up to the greeting of the login shell, which proves that the shell understood the command.
async fn check_greeting(
    mut sent: SentCommand,
    job: &Job,
    was_spare: bool,
    abandoned: &CancellationToken,
) -> Result<CommandSent, SpawnError> {
    let mut first = FirstEvents::new(&mut sent.reader, &job.mark);
    let words = first.read(&sent.writer, abandoned).await;
    sent.first_events = first.events;

    let link = sent.lease.connection();
    match words {
        FirstWords::Greeted(machine) => link.note_greeting(machine),
        FirstWords::NoShell => link.note_no_shell(),
        FirstWords::Silence => return Err(SpawnError::channel(job, ChannelError::Silent)),
        // The recorder reports the loss.
        FirstWords::Lost => {}
        FirstWords::NotRun | FirstWords::GivenUp if abandoned.is_cancelled() => {
            return Err(SpawnError::Abandoned);
        }
        FirstWords::NotRun if was_spare && was_closed(&sent.first_events) => {
            return Ok(CommandSent::ChannelLost);
        }
        FirstWords::NotRun => {
            link.note_refusal();
            return Ok(CommandSent::OtherShell(sent.lease));
        }
        // Not a refusal: the likely shell may only be slow, so the probe tries it as well.
        FirstWords::GivenUp => return Ok(CommandSent::OtherShell(sent.lease)),
    }
    Ok(CommandSent::Command(Box::new(sent)))
}

/// Makes a channel ready for the command: requests a terminal if the job needs one.
async fn prepare(channel: &mut Channel, job: &Job, link: &Link) -> Result<ExecPlan, SpawnError> {
    let plan = plan(job, link).await?;
    if let Some(terminal) = &job.spec.terminal {
        channel
            .request_pty(&terminal.term, terminal.size())
            .await
            .map_err(|error| SpawnError::channel(job, error))?;
    }
    Ok(plan)
}

/// The command line for the host's login shell, or for the likely one if none is known.
async fn plan(job: &Job, link: &Link) -> Result<ExecPlan, SpawnError> {
    if let Some(shell) = link.known_shell() {
        return Ok(ExecPlan::new(&job.spec, shell, job.mark.clone())?);
    }
    match ExecPlan::untried(&job.spec, link.likely_shell(), job.mark.clone()) {
        // The plan for a known shell is shorter and may fit.
        Err(PlanError::TooLong(_)) => {
            let shell = link.ask_shell().await.map_err(|error| SpawnError::channel(job, error))?;
            Ok(ExecPlan::new(&job.spec, shell, job.mark.clone())?)
        }
        plan => Ok(plan?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_ends_without_a_reply_was_closed_before() {
        use ChannelEvent::{Close, Eof, ExitStatus, Failure, Success};
        for events in [&[Close][..], &[Eof, Close]] {
            assert!(was_closed(&events.iter().cloned().collect()), "{events:?}");
        }
        for events in [
            &[][..],
            &[Eof],
            &[Success, Eof, Close],
            &[Failure],
            &[Eof, ExitStatus(0)],
        ] {
            assert!(!was_closed(&events.iter().cloned().collect()), "{events:?}");
        }
    }
}
