use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ssh::{Channel, ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Most bytes that are kept of what a short command prints.
const ANSWER_LIMIT: usize = 64 << 10;

/// Most bytes that are kept of what it prints to stderr.
const COMPLAINT_LIMIT: usize = 4 << 10;

/// A short command of our own that runs, and may wait for what it is fed.
pub struct Begun {
    reader: ChannelReader,
    writer: ChannelWriter,
}

impl Begun {
    /// Runs a command on a channel.
    pub async fn new(channel: Channel, command: &str) -> Result<Self, ChannelError> {
        let (reader, writer) = channel.exec(command).await?;
        Ok(Self { reader, writer })
    }

    /// Feeds it `input`, as [`run_fed`] does.
    pub async fn feed(
        self,
        input: SecretSlice<u8>,
        bounds: (Duration, fn(&str) -> bool),
    ) -> Result<Printed, ChannelError> {
        feed(async { Ok(self) }, input, bounds).await
    }

    async fn feed_to_the_end(
        self,
        input: SecretSlice<u8>,
        (limit, mut see): (Duration, impl FnMut(&[u8])),
    ) -> Result<Printed, ChannelError> {
        let Self { mut reader, writer } = self;
        let feeding = async {
            let mut left = input.expose_secret();
            while !left.is_empty() {
                let written = writer.write(left).await?;
                left = &left[written..];
            }
            writer.eof().await
        };
        let both = async {
            // What ends without having read all has said why. Without a connection nothing is read, either.
            match select(pin!(feeding), pin!(collect(&mut reader, &mut see))).await {
                Either::Left((_fed, reading)) => reading.await,
                Either::Right((printed, _)) => printed,
            }
        };
        let in_time = timeout(limit, both).await;
        writer.close().await?;
        in_time.map_err(|_| ChannelError::TimedOut(limit))?
    }

    /// Gives it up: its stdin ends, and its channel is closed.
    pub async fn give_up(self) {
        // A connection that is lost needs no closing.
        self.writer.close().await.ok();
    }
}

/// What a short command has printed, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// What it printed to stdout, up to 64 KiB.
    pub stdout: String,
    /// What it printed to stderr, up to 4 KiB.
    pub stderr: String,
    /// Its exit-status; none when the server has told none yet.
    pub status: Option<u32>,
}

/// Runs a short command of our own and returns what it printed to stdout, within `limit`. When the caller goes away it still comes to
/// its end, so that the channel is closed.
pub async fn run_short(channel: Channel, command: &str, limit: Duration) -> Result<String, ChannelError> {
    let printed = run_fed(channel, command, Vec::new().into(), (limit, |_| false)).await?;
    Ok(printed.stdout)
}

/// The same, with input for its stdin. Returns as soon as `enough` accepts what it has printed; the command then ends in its own time.
pub async fn run_fed(
    channel: Channel,
    command: &str,
    input: SecretSlice<u8>,
    bounds: (Duration, fn(&str) -> bool),
) -> Result<Printed, ChannelError> {
    let command = command.to_owned();
    feed(async move { Begun::new(channel, &command).await }, input, bounds).await
}

#[expect(clippy::disallowed_methods, reason = "it outlives its caller on purpose, and is bounded in time")]
async fn feed(
    command: impl Future<Output = Result<Begun, ChannelError>> + Send + 'static,
    input: SecretSlice<u8>,
    (limit, enough): (Duration, fn(&str) -> bool),
) -> Result<Printed, ChannelError> {
    let (answered, early) = oneshot::channel();
    let mut answered = Some(answered);
    let see = move |printed: &[u8]| {
        let stdout = String::from_utf8_lossy(printed);
        if enough(&stdout)
            && let Some(answered) = answered.take()
        {
            // The caller may have been cancelled.
            answered.send(Printed { stdout: stdout.into_owned(), ..Printed::default() }).ok();
        }
    };
    let feeding = tokio::spawn(async move { command.await?.feed_to_the_end(input, (limit, see)).await });
    match early.await {
        Ok(answer) => Ok(answer),
        Err(_) => feeding.await.unwrap_or(Err(ChannelError::ConnectionLost)),
    }
}

/// Takes a command's events up to its end. A channel that is closed before the server has answered ran nothing: it was opened ahead,
/// and the connection or the server has dropped it since.
async fn collect(reader: &mut ChannelReader, see: &mut impl FnMut(&[u8])) -> Result<Printed, ChannelError> {
    let (mut stdout, mut stderr, mut status, mut is_answered) = (Vec::new(), Vec::new(), None, false);
    loop {
        match reader.next().await {
            Some(ChannelEvent::Data(bytes)) => {
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
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Printed { stdout: text(stdout), stderr: text(stderr), status })
}
