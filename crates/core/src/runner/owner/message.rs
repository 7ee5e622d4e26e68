//! Format of the messages: a length of four bytes (big endian), then JSON. After a request come the
//! bytes to write.

use std::io;
use std::time::Duration;

use secrecy::zeroize::Zeroizing;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::runner::signal::SignalReport;
use crate::runner::state::WriteError;
use sshjobs_job::{FarEndError, JobId};

/// Maximum bytes of a message.
const MOST_MESSAGE: u32 = 64 << 10;
/// Maximum bytes written by one call. The client side refuses longer writes.
const MOST_DATA: usize = 2 << 20;

/// A call for one job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRequest {
    pub(super) job: JobId,
    pub(super) call: OwnerCall,
    /// Number of bytes to write that follow.
    pub(super) data_length: usize,
}

/// The action to perform on the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum OwnerCall {
    Write {
        patience: Duration,
    },
    CloseStdin {
        patience: Duration,
    },
    IsStdinClosed,
    /// Hide a secret in output that arrives later. The bytes that follow are its value.
    Hide {
        name: String,
    },
    Resize {
        cols: u32,
        rows: u32,
    },
    /// Send a signal, given by name, to all processes of the job, and KILL after the grace to those
    /// that still live.
    Signal {
        name: String,
        grace: Option<Duration>,
    },
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnerReply {
    /// The call succeeded.
    Done,
    /// Whether stdin is closed.
    IsStdinClosed(bool),
    /// Result of a signal.
    Signalled(SignalReport),
    /// The call failed.
    Refused(OwnerRefusal),
}

/// Why a call failed; mirrors [`WriteError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnerRefusal {
    StdinClosed,
    JobEnded,
    Starting,
    Backpressure { written: usize },
    NoTerminal,
    ConnectionLost,
    StdinEnded,
    TimedOut(Duration),
    Unsupported,
}

impl From<WriteError> for OwnerRefusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::StdinClosed => Self::StdinClosed,
            // An owner performs calls itself, so the last two do not occur.
            WriteError::JobEnded | WriteError::NotOwner(_) | WriteError::OwnerGone(_) => {
                Self::JobEnded
            }
            WriteError::Starting => Self::Starting,
            WriteError::Backpressure { written } => Self::Backpressure { written },
            WriteError::NoTerminal => Self::NoTerminal,
            WriteError::FarEnd(FarEndError::ConnectionLost) => Self::ConnectionLost,
            WriteError::FarEnd(FarEndError::StdinEnded) => Self::StdinEnded,
            WriteError::FarEnd(FarEndError::TimedOut(limit)) => Self::TimedOut(limit),
            WriteError::FarEnd(FarEndError::Unsupported(_)) => Self::Unsupported,
        }
    }
}

impl From<OwnerRefusal> for WriteError {
    fn from(refusal: OwnerRefusal) -> Self {
        match refusal {
            OwnerRefusal::StdinClosed => Self::StdinClosed,
            OwnerRefusal::JobEnded => Self::JobEnded,
            OwnerRefusal::Starting => Self::Starting,
            OwnerRefusal::Backpressure { written } => Self::Backpressure { written },
            OwnerRefusal::NoTerminal => Self::NoTerminal,
            OwnerRefusal::ConnectionLost => Self::FarEnd(FarEndError::ConnectionLost),
            OwnerRefusal::StdinEnded => Self::FarEnd(FarEndError::StdinEnded),
            OwnerRefusal::TimedOut(limit) => Self::FarEnd(FarEndError::TimedOut(limit)),
            OwnerRefusal::Unsupported => Self::FarEnd(FarEndError::Unsupported("can't do that")),
        }
    }
}

/// Sends a message.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    to: &mut W,
    message: &impl Serialize,
) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.write_u32(length).await?;
    to.write_all(&json).await
}

/// Receives a message.
///
/// # Errors
/// Also if the other end sends something else, or too much.
pub(super) async fn receive<T: DeserializeOwned, R: AsyncRead + Unpin>(
    from: &mut R,
) -> io::Result<T> {
    let length = from.read_u32().await?;
    if length > MOST_MESSAGE {
        return Err(io::Error::other("the message is too long"));
    }
    let mut json = vec![0; length as usize];
    from.read_exact(&mut json).await?;
    Ok(serde_json::from_slice(&json)?)
}

/// Receives the bytes that a request announces. They are wiped when dropped.
pub(super) async fn receive_data<R: AsyncRead + Unpin>(
    from: &mut R,
    length: usize,
) -> io::Result<Zeroizing<Vec<u8>>> {
    if length > MOST_DATA {
        return Err(io::Error::other("these are too many bytes for one call"));
    }
    let mut data = Zeroizing::new(vec![0; length]);
    from.read_exact(&mut data).await?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_received_as_it_was_sent_and_a_long_one_is_refused() {
        let (mut one, mut other) = tokio::io::duplex(1024);
        let sent = OwnerReply::Refused(OwnerRefusal::Backpressure { written: 7 });

        send(&mut one, &sent).await.unwrap();
        assert_eq!(receive::<OwnerReply, _>(&mut other).await.unwrap(), sent);

        one.write_u32(MOST_MESSAGE + 1).await.unwrap();
        assert!(receive::<OwnerReply, _>(&mut other).await.is_err());
    }
}
