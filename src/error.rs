//! Errors of the library.

use std::fmt;

use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{ConnectError, Refusal, SpawnError};

/// Why a call failed. [`kind`](Self::kind) is for programs, and
/// [`source`](std::error::Error::source) has the cause. A command that exits with an error is not an
/// `Error`.
#[derive(Clone)]
pub struct Error {
    core: core_jobs::Error,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No job has this id, or a fleet has no such member.
    UnknownJob,
    /// The job is no longer kept.
    Expired,
    /// No host has this name, or a pattern matches none.
    UnknownHost,
    /// The key of the host is unknown, has changed, or is revoked.
    HostKey,
    /// The host does not let the account in.
    Login,
    /// The host can't be reached, or its configuration is wrong.
    Unreachable,
    /// The policy does not allow it.
    Refused,
    /// The command is invalid for any host.
    InvalidCommand,
    /// The host did not start the command.
    NotStarted,
    /// The job still runs, and must end first.
    StillRunning,
    /// The job was not signalled.
    Signal,
    /// Stdin was not written or closed, or the terminal not resized.
    Stdin,
    /// A file was not read or written.
    Files,
    /// A port can't be forwarded.
    Forward,
    /// A pattern takes too long.
    SlowPattern,
    /// The state directory can't be used.
    Storage,
}

impl Error {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        use core_jobs::Error as Core;
        match &self.core {
            Core::UnknownJob(_) | Core::NoMember { .. } | Core::MemberNotStarted { .. } => {
                ErrorKind::UnknownJob
            }
            Core::Expired(_) => ErrorKind::Expired,
            Core::Refused(Refusal::Host(_)) => ErrorKind::UnknownHost,
            Core::Refused(_) | Core::Secret(_) => ErrorKind::Refused,
            Core::NoTerminal(_) | Core::Write(_) => ErrorKind::Stdin,
            Core::StillRunning(_) => ErrorKind::StillRunning,
            Core::Spec(_) => ErrorKind::InvalidCommand,
            Core::Spawn { source, .. } => {
                if let SpawnError::Connect(error) = source {
                    kind_of_connection(error)
                } else {
                    ErrorKind::NotStarted
                }
            }
            Core::Connect { source, .. } => kind_of_connection(source),
            Core::Trust(_) => ErrorKind::HostKey,
            Core::Signal(_) => ErrorKind::Signal,
            #[cfg(feature = "files")]
            Core::Files(_) => ErrorKind::Files,
            Core::Forward(_) => ErrorKind::Forward,
            Core::TooSlow(_) => ErrorKind::SlowPattern,
            Core::TooManyCursors(_) | Core::Store(_) | Core::Demo(_) => ErrorKind::Storage,
        }
    }
}

fn kind_of_connection(error: &ConnectError) -> ErrorKind {
    match error {
        ConnectError::HostKey(_) => ErrorKind::HostKey,
        ConnectError::Auth { .. } | ConnectError::Paused { .. } => ErrorKind::Login,
        ConnectError::JumpHost { source, .. } => kind_of_connection(source),
        ConnectError::Config(_)
        | ConnectError::Unreachable { .. }
        | ConnectError::TimedOut { .. }
        | ConnectError::NoCommonAlgorithm { .. }
        | ConnectError::HungUp { .. }
        | ConnectError::Protocol { .. } => ErrorKind::Unreachable,
    }
}

impl From<core_jobs::Error> for Error {
    fn from(core: core_jobs::Error) -> Self {
        Self { core }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.core.source()
    }
}
