//! A command whose output and stdin go over one connection (a WebSocket): what both sides say.
//!
//! The client's first message is the request, a [`CommandRequest`](super::CommandRequest) as JSON in a text message; all others are
//! stdin. The server's text messages are [`SessionEvent`]s. Binary messages are bytes of a stream behind its number. Signals and
//! sizes of the terminal are calls of their own.

use serde::{Deserialize, Serialize};

use super::{Error, JobEntry};

/// What a binary message is part of; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChannel {
    /// 0: stdin, from the client. A message without bytes ends it.
    Stdin,
    /// 1: standard output, from the server.
    Stdout,
    /// 2: standard error, from the server.
    Stderr,
}

impl SessionChannel {
    /// Messages of stdin that the server holds for a command that does not read. With so many not yet
    /// [taken](SessionEvent::Taken) the client sends no more.
    pub const STDIN_AHEAD: usize = 8;

    /// A message of this channel.
    pub fn frame(self, bytes: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(bytes.len() + 1);
        frame.push(self as u8);
        frame.extend_from_slice(bytes);
        frame
    }

    /// The channel of a message, and its bytes; none for a channel that is not known.
    pub fn of(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (number, bytes) = frame.split_first()?;
        let known = [Self::Stdin, Self::Stdout, Self::Stderr];
        known.into_iter().find(|channel| *channel as u8 == *number).map(|channel| (channel, bytes))
    }
}

/// What the server says of the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEvent {
    /// It runs.
    Started(Box<JobEntry>),
    /// A message of stdin was taken, or the command takes none any more: there is room for another.
    Taken,
    /// It was not started.
    Failed(Error),
    /// It has ended, and all of its output was sent but for what was dropped.
    Ended {
        /// How it stands.
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
        for channel in [SessionChannel::Stdin, SessionChannel::Stdout, SessionChannel::Stderr] {
            assert_eq!(SessionChannel::of(&channel.frame(b"ab")), Some((channel, &b"ab"[..])));
        }
        assert_eq!(SessionChannel::of(b"\x03x"), None);
        assert_eq!(SessionChannel::of(b""), None);
    }
}
