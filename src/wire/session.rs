//! Messages of a command whose output and stdin use one connection (a WebSocket).
//!
//! The client's first message is the request, a
//! [`CommandRequest`](crate::wire::verbs::CommandRequest) as JSON in a text message; all others are
//! stdin. The server's text messages are [`SessionEvent`]s. A binary message has the number of a
//! stream, then its bytes. Signals and terminal sizes are separate calls.

use serde::{Deserialize, Serialize};

use crate::wire::error::Error;
use crate::wire::verbs::JobEntry;

/// Stream of a binary message, given by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChannel {
    /// 0: stdin, from the client. A message without bytes closes it.
    Stdin,
    /// 1: standard output, from the server.
    Stdout,
    /// 2: standard error, from the server.
    Stderr,
}

impl SessionChannel {
    /// Maximum messages of stdin that the server holds for a command that does not read. While this
    /// number of messages is not [taken](SessionEvent::Taken), the client must send no further one:
    /// the server would end the session.
    pub const STDIN_AHEAD: usize = 8;

    /// A message of this channel.
    pub fn frame(self, bytes: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(bytes.len() + 1);
        // The numbers on the wire are the discriminants, so the variants must keep their order.
        frame.push(self as u8);
        frame.extend_from_slice(bytes);
        frame
    }

    /// The channel of a message, and its bytes. `None` for an unknown channel.
    pub fn of(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (number, bytes) = frame.split_first()?;
        let known = [Self::Stdin, Self::Stdout, Self::Stderr];
        known
            .into_iter()
            .find(|channel| *channel as u8 == *number)
            .map(|channel| (channel, bytes))
    }
}

/// An event that the server reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEvent {
    /// The command runs.
    Started(Box<JobEntry>),
    /// A message of stdin was written, or the command accepts no more: there is room for another.
    Taken,
    /// The command was not started.
    Failed(Error),
    /// The command has ended, and all of its output was sent, except for `dropped_bytes`.
    Ended {
        /// Its final state.
        job: Box<JobEntry>,
        /// Bytes that were lost before they could be sent.
        dropped_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        for channel in [
            SessionChannel::Stdin,
            SessionChannel::Stdout,
            SessionChannel::Stderr,
        ] {
            assert_eq!(
                SessionChannel::of(&channel.frame(b"ab")),
                Some((channel, &b"ab"[..]))
            );
        }
        assert_eq!(SessionChannel::of(b"\x03x"), None);
        assert_eq!(SessionChannel::of(b""), None);
    }
}
