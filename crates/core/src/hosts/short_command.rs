//! Runs short internal commands on a channel of their own, bounded in time and output.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::oneshot;
use tokio::time::timeout;

use sshjobs_job::repeats_our_command;
use sshjobs_ssh::{Channel, ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Maximum bytes kept of a short command's stdout.
const ANSWER_LIMIT: usize = 64 << 10;

/// Maximum bytes kept of its stderr.
const COMPLAINT_LIMIT: usize = 4 << 10;

/// Output of a short command, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct CommandOutcome {
    /// Its stdout, up to 64 KiB.
    pub stdout: String,
    /// Its stderr, up to 4 KiB.
    pub stderr: String,
    /// Its exit status. `None` if the server has not reported one.
    pub status: Option<u32>,
}

impl CommandOutcome {
    /// Whether its output quotes the command, as an error message does.
    pub fn repeats_our_command(&self) -> bool {
        repeats_our_command(self.stdout.as_bytes()) || repeats_our_command(self.stderr.as_bytes())
    }

    /// Whether something ended with status 0 and has printed nothing, which none of our commands does.
    pub fn is_silent_success(&self) -> bool {
        self.status == Some(0) && self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// Runs a short internal command and returns its output, within `limit`. If the caller goes away,
/// the command still runs to its end, so that the channel is closed.
pub async fn run_short(
    channel: Channel,
    command: &str,
    limit: Duration,
) -> Result<CommandOutcome, ChannelError> {
    run_fed(channel, command, Vec::new().into(), limit, |_| false).await
}

/// Like [`run_short`], with input for its stdin. Returns as soon as `enough` accepts the output;
/// the command then ends on its own.
#[expect(
    clippy::disallowed_methods,
    reason = "it outlives its caller on purpose, and is bounded in time"
)]
pub async fn run_fed(
    channel: Channel,
    command: &str,
    input: SecretSlice<u8>,
    limit: Duration,
    enough: fn(&str) -> bool,
) -> Result<CommandOutcome, ChannelError> {
    let (answered, early) = oneshot::channel();
    let mut answered = Some(answered);
    let see = move |printed: &[u8]| {
        let stdout = String::from_utf8_lossy(printed);
        if enough(&stdout)
            && let Some(answered) = answered.take()
        {
            // The caller may have been cancelled.
            answered
                .send(CommandOutcome {
                    stdout: stdout.into_owned(),
                    ..CommandOutcome::default()
                })
                .ok();
        }
    };
    let command = command.to_owned();
    // A task of its own: a caller that is cancelled must not leave the channel open.
    let running = tokio::spawn(async move {
        let (reader, writer) = channel.exec(&command).await?;
        feed_to_the_end(reader, writer, input, limit, see).await
    });
    // The task owns the sender, so this ends with the task at the latest.
    match early.await {
        Ok(answer) => Ok(answer),
        Err(_) => running.await.unwrap_or(Err(ChannelError::ConnectionLost)),
    }
}

/// The output of a command that was started on a channel, with input for its stdin. Dropping the
/// future leaves the channel open until the connection ends.
pub async fn feed_started(
    reader: ChannelReader,
    writer: ChannelWriter,
    input: SecretSlice<u8>,
    limit: Duration,
) -> Result<CommandOutcome, ChannelError> {
    feed_to_the_end(reader, writer, input, limit, |_| {}).await
}

async fn feed_to_the_end(
    mut reader: ChannelReader,
    writer: ChannelWriter,
    input: SecretSlice<u8>,
    limit: Duration,
    mut see: impl FnMut(&[u8]),
) -> Result<CommandOutcome, ChannelError> {
    let feeding = async {
        let mut left = input.expose_secret();
        while !left.is_empty() {
            let written = writer.write(left).await?;
            left = &left[written..];
        }
        writer.eof().await
    };
    let both = async {
        // A command that ends without reading everything has reported why. Without a connection
        // nothing is read, either.
        match select(pin!(feeding), pin!(collect(&mut reader, &mut see))).await {
            Either::Left((_fed, reading)) => reading.await,
            Either::Right((printed, _)) => printed,
        }
    };
    let in_time = timeout(limit, both).await;
    writer.close().await?;
    in_time.map_err(|_| ChannelError::TimedOut(limit))?
}

/// Handles a command's events up to its end. If the channel is closed before the server has
/// answered, the command did not run: the channel was opened in advance, and the connection or the
/// server has dropped it since.
async fn collect(
    reader: &mut ChannelReader,
    see: &mut impl FnMut(&[u8]),
) -> Result<CommandOutcome, ChannelError> {
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let mut status = None;
    let mut is_answered = false;
    loop {
        match reader.next().await {
            Some(ChannelEvent::Data(bytes)) => {
                // The rest is read and dropped: unread events block every channel.
                if stdout.len() < ANSWER_LIMIT {
                    stdout.extend_from_slice(&bytes);
                    see(&stdout);
                }
            }
            Some(ChannelEvent::ExtendedData(bytes)) => {
                if stderr.len() < COMPLAINT_LIMIT {
                    stderr.extend_from_slice(&bytes);
                }
            }
            Some(ChannelEvent::ExitStatus(told)) => status = Some(told),
            Some(ChannelEvent::Success) => is_answered = true,
            Some(ChannelEvent::Failure) => break,
            Some(ChannelEvent::Close) if is_answered || !stdout.is_empty() => break,
            Some(ChannelEvent::Close) | None if status.is_some() => break,
            Some(ChannelEvent::Close) | None => return Err(ChannelError::ConnectionLost),
            Some(ChannelEvent::Eof | ChannelEvent::ExitSignal(_)) => {}
        }
    }
    Ok(CommandOutcome {
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        status,
    })
}
