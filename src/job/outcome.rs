use std::fmt;

/// How the remote command ended, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status (RFC 4254 §6.10, exit-status).
    Status(u32),
    /// This signal ended it, named without `SIG` (RFC 4254 §6.10, exit-signal).
    Signal(String),
}

/// How a job ended. No kind of end is ever reported as another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The command ended, and its output was drained.
    Ended(Exit),
    /// The connection was lost first. The command may still run, and output may be missing. The exit is known if the
    /// server had told it before.
    Lost(Option<Exit>),
    /// The server closed the channel and never told how the command ended.
    Closed,
    /// The server refused to run the command.
    Refused,
    /// It was not started, and why.
    NotStarted(String),
    /// The job's own time limit ended it.
    TimedOut(Option<Exit>),
}

impl Outcome {
    /// How the command ended, when that is known.
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Ended(exit) => Some(exit),
            Self::Lost(exit) | Self::TimedOut(exit) => exit.as_ref(),
            Self::Closed | Self::Refused | Self::NotStarted(_) => None,
        }
    }

    /// Whether the command exited with status 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Ended(Exit::Status(0))
    }

    /// The status that the command exited with, when it did and that is known.
    pub fn exit_status(&self) -> Option<u32> {
        match self.exit()? {
            Exit::Status(status) => Some(*status),
            Exit::Signal(_) => None,
        }
    }

    /// The signal that ended the command, without `SIG`, when one did and that is known.
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
            Self::Lost(_) => f.write_str("was lost with its connection"),
            Self::Closed => f.write_str("was closed by the host, which did not say how it ended"),
            Self::Refused => f.write_str("was refused by the host"),
            Self::NotStarted(why) => write!(f, "was not started: {why}"),
            Self::TimedOut(_) => f.write_str("ran into its time limit"),
        }
    }
}
