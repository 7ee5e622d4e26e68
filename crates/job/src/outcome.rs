//! How jobs and commands end. No kind of end is ever reported as another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the remote command ended, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this status (RFC 4254 §6.10, exit-status).
    Status(u32),
    /// This signal ended it, named without `SIG` (RFC 4254 §6.10, exit-signal).
    Signal(String),
}

/// How a job ended. No kind of end is ever reported as another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command ended, and its output was drained.
    Ended(Exit),
    /// The connection, process or host was lost first. The command may still run, and output may be
    /// missing. The exit is known if the server had reported it before.
    Lost(LostWhy, Option<Exit>),
    /// The server closed the channel without reporting how the command ended.
    Closed,
    /// The server refused to run the command.
    Refused,
    /// It was not started, for this reason.
    NotStarted(String),
    /// The job's own time limit ended it.
    TimedOut(Option<Exit>),
}

/// The part that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostWhy {
    /// The job's connection.
    Connection,
    /// The sshjobs process that recorded it.
    ServerRestarted,
    /// Its host was rebooted.
    HostRebooted,
    /// Its supervisor on the host.
    SupervisorDied,
    /// Its files on the host.
    SpoolGone,
}

impl LostWhy {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::ServerRestarted => "server_restarted",
            Self::HostRebooted => "host_rebooted",
            Self::SupervisorDied => "supervisor_died",
            Self::SpoolGone => "spool_gone",
        }
    }
}

impl Outcome {
    /// How the command ended, if known.
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Ended(exit) => Some(exit),
            Self::Lost(_, exit) | Self::TimedOut(exit) => exit.as_ref(),
            Self::Closed | Self::Refused | Self::NotStarted(_) => None,
        }
    }

    /// Whether the command exited with status 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Ended(Exit::Status(0))
    }

    /// Exit status of the command, if it exited and the status is known.
    pub fn exit_status(&self) -> Option<u32> {
        match self.exit()? {
            Exit::Status(status) => Some(*status),
            Exit::Signal(_) => None,
        }
    }

    /// Name of the signal that ended the command, without `SIG`. `None` if no signal ended it, or
    /// if the exit is unknown.
    pub fn exit_signal(&self) -> Option<&str> {
        match self.exit()? {
            Exit::Status(_) => None,
            Exit::Signal(signal) => Some(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exited with status {status}"),
            Self::Signal(signal) => write!(f, "was ended by SIG{signal}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(exit) => exit.fmt(f),
            Self::Lost(why, _) => f.write_str(match why {
                LostWhy::Connection => "was lost with its connection",
                LostWhy::ServerRestarted => {
                    "was lost when the sshjobs process that recorded it ended"
                }
                LostWhy::HostRebooted => "was lost when its host was restarted",
                LostWhy::SupervisorDied => "was lost with its supervisor on the host",
                LostWhy::SpoolGone => "was lost with its files on the host",
            }),
            Self::Closed => f.write_str("was closed by the host, which did not say how it ended"),
            Self::Refused => f.write_str("was refused by the host"),
            Self::NotStarted(why) => write!(f, "was not started: {why}"),
            Self::TimedOut(_) => f.write_str("ran into its time limit"),
        }
    }
}
