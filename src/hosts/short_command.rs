use std::time::Duration;

use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ssh::{Channel, ChannelError, ChannelEvent};

/// Most bytes that are kept of what a short command prints.
const ANSWER_LIMIT: usize = 64 << 10;

/// Runs a short command of our own and returns what it printed, within `limit`. When the caller goes away it still comes to its
/// end, so that the channel is closed.
#[expect(clippy::disallowed_methods, reason = "it outlives its caller on purpose, and is bounded in time")]
pub async fn run_short(channel: Channel, command: &str, limit: Duration) -> Result<String, ChannelError> {
    let asking = tokio::spawn(run_to_the_end(channel, command.to_owned(), limit));
    asking.await.unwrap_or(Err(ChannelError::ConnectionLost))
}

/// The same, with input for its stdin. Returns as soon as `enough` accepts what it has printed; the command then ends in its own time.
#[expect(clippy::disallowed_methods, reason = "it outlives its caller on purpose, and is bounded in time")]
pub async fn run_fed(
    channel: Channel,
    command: &str,
    input: SecretSlice<u8>,
    (limit, enough): (Duration, fn(&str) -> bool),
) -> Result<String, ChannelError> {
    let (answered, early) = oneshot::channel();
    let mut answered = Some(answered);
    let see = move |printed: &[u8]| {
        let printed = String::from_utf8_lossy(printed);
        if enough(&printed)
            && let Some(answered) = answered.take()
        {
            // The caller may have been cancelled.
            answered.send(printed.into_owned()).ok();
        }
    };
    let asking = tokio::spawn(feed_to_the_end(channel, command.to_owned(), input, (limit, see)));
    match early.await {
        Ok(answer) => Ok(answer),
        Err(_) => asking.await.unwrap_or(Err(ChannelError::ConnectionLost)),
    }
}

async fn run_to_the_end(channel: Channel, command: String, limit: Duration) -> Result<String, ChannelError> {
    feed_to_the_end(channel, command, Vec::new().into(), (limit, |_: &[u8]| ())).await
}

async fn feed_to_the_end(
    channel: Channel,
    command: String,
    input: SecretSlice<u8>,
    (limit, mut see): (Duration, impl FnMut(&[u8])),
) -> Result<String, ChannelError> {
    let (mut reader, writer) = channel.exec(&command).await?;
    let feeding = async {
        let mut left = input.expose_secret();
        while !left.is_empty() {
            let written = writer.write(left).await?;
            left = &left[written..];
        }
        writer.eof().await
    };
    let mut answer = Vec::new();
    let reading = async {
        while let Some(event) = reader.next().await {
            if event == ChannelEvent::Close {
                break;
            }
            if let ChannelEvent::Data(bytes) = event
                && answer.len() < ANSWER_LIMIT
            {
                answer.extend_from_slice(&bytes);
                see(&answer);
            }
        }
    };
    // What ends without having read all has said why.
    let in_time = timeout(limit, async { tokio::join!(feeding, reading) }).await;
    writer.close().await?;
    in_time.map_err(|_| ChannelError::TimedOut(limit))?.0?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
