use std::time::Duration;

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

async fn run_to_the_end(channel: Channel, command: String, limit: Duration) -> Result<String, ChannelError> {
    let (mut reader, writer) = channel.exec(&command).await?;
    writer.eof().await?;
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
            }
        }
    };
    let in_time = timeout(limit, reading).await;
    writer.close().await?;
    in_time.map_err(|_| ChannelError::TimedOut(limit))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
