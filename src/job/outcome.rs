/// How the remote command itself ended, as the server told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status (RFC 4254 §6.10, exit-status).
    Status(u32),
    /// This signal ended it, named without `SIG` (RFC 4254 §6.10, exit-signal).
    Signal(String),
}

/// What became of a job. No two of these are ever reported as one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended, and its output was drained.
    Ended(Exit),
    /// The connection went away first. The command may still run; output may be missing. The exit is known when the
    /// server had told it before.
    Lost(Option<Exit>),
    /// The server closed the channel and never told how the command ended.
    Closed,
    /// The server refused to run the command.
    Refused,
    /// It never began, and why.
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
}
