//! Messages of a command whose output and stdin use one connection (a WebSocket).
//!
//! The client's first message is the request, a [`SessionRequest`] as JSON in a text message; all
//! others are stdin, or leave the command running. The server's text messages are [`SessionEvent`]s. A binary message has the number of a
//! stream, then its bytes. Signals and terminal sizes are separate calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::request::WireRequest;
use crate::verbs::{CommandRequest, JobEntry};

/// The first message of a client: the arguments of `spawn` to start a command, or
/// `{"attach": "JOB"}` to join the terminal of a job that runs.
#[derive(Clone, Debug)]
pub enum SessionRequest {
    /// Start this command. If it is not durable, it ends with the session.
    Start(Box<CommandRequest>),
    /// Show the screen of this job and what it prints from now on. The job outlives the session.
    Attach(String),
}

/// The argument that names the job.
const ATTACH: &str = "attach";

impl SessionRequest {
    /// The request as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Start(command) => serde_json::to_value(command).expect("a request is plain data"),
            Self::Attach(job_id) => serde_json::json!({ ATTACH: job_id }),
        }
    }

    /// Parses the first message.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn parse(mut arguments: Map<String, Value>) -> Result<Self, Error> {
        let Some(job_id) = arguments.remove(ATTACH) else {
            return Ok(Self::Start(Box::new(CommandRequest::parse(arguments)?)));
        };
        if let Value::String(job_id) = job_id
            && arguments.is_empty()
        {
            return Ok(Self::Attach(job_id));
        }
        Err(Error::invalid(
            "attach takes a job and no other argument",
            r#"send {"attach": "JOB"}"#,
        ))
    }
}

/// Stream of a binary message, given by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChannel {
    /// 0: stdin, from the client. A message without bytes closes it.
    Stdin,
    /// 1: standard output, from the server.
    Stdout,
    /// 2: standard error, from the server.
    Stderr,
    /// 3: from the client, without bytes: the command continues when the session ends, also if it is
    /// not durable. The server answers [`SessionEvent::Left`].
    Leave,
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
        let known = [Self::Stdin, Self::Stdout, Self::Stderr, Self::Leave];
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
    /// The command runs, or the job was joined.
    Started(Box<JobEntry>),
    /// A message of stdin was written, or the command accepts no more: there is room for another.
    Taken,
    /// The command continues when this session ends.
    Left,
    /// The command was not started, or the job can't be joined.
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
    fn the_first_message_starts_a_command_or_names_a_job() {
        let parse = |value: Value| SessionRequest::parse(value.as_object().unwrap().clone());

        let attach = SessionRequest::Attach("web1-7f3k9q2m".to_owned()).to_json();
        assert!(matches!(parse(attach), Ok(SessionRequest::Attach(job)) if job == "web1-7f3k9q2m"));

        let start = serde_json::json!({"host": "web1", "command": "top"});
        assert!(matches!(parse(start), Ok(SessionRequest::Start(start)) if start.host == "web1"));

        for mistake in [
            serde_json::json!({"attach": 1}),
            serde_json::json!({"attach": "web1-7f3k9q2m", "command": "top"}),
        ] {
            assert!(parse(mistake).is_err());
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        for channel in [
            SessionChannel::Stdin,
            SessionChannel::Stdout,
            SessionChannel::Stderr,
            SessionChannel::Leave,
        ] {
            assert_eq!(
                SessionChannel::of(&channel.frame(b"ab")),
                Some((channel, &b"ab"[..]))
            );
        }
        assert_eq!(SessionChannel::of(b"\x04x"), None);
        assert_eq!(SessionChannel::of(b""), None);
    }
}
