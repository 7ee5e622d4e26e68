//! Errors of the library.

use std::sync::Arc;

use super::secrets::SecretRefusal;
use crate::admission::Refusal;
#[cfg(feature = "files")]
use crate::files::FilesError;
use crate::forward::ForwardError;
use crate::hosts::HostError;
use crate::runner::{QueueError, SignalError, SpawnError, Tombstone, WriteError};
use sshjobs_job::{JobId, Phase, SpecError, TooManyCursors, TooSlow};
use sshjobs_ssh::{ConnectError, TrustError};
use sshjobs_store::StoreError;

/// Why a call failed. [`source`](std::error::Error::source) has the cause. A command that exits
/// with an error is not an `Error`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The caller has no job with this id.
    #[error("no job has the id {0:?}")]
    UnknownJob(String),
    /// The fleet has no such member.
    #[error("{fleet} has no member {name:?}")]
    NoMember {
        /// The fleet.
        fleet: JobId,
        /// The requested member.
        name: String,
        /// The most similar member.
        nearest: Option<String>,
    },
    /// The member of a fleet has no job.
    #[error("{name} has no job in {fleet}: {why}")]
    MemberNotStarted {
        /// The fleet.
        fleet: JobId,
        /// The member.
        name: String,
        /// The reason.
        why: String,
    },
    /// The job is no longer kept.
    #[error("job {} on {} {} after {} lines, and is no longer kept", .0.id, .0.host, ended(.0), .0.status.total_lines)]
    Expired(Box<Tombstone>),
    /// The caller, the host or the policy does not allow it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A secret of the configuration can't be used.
    #[error(transparent)]
    Secret(Box<SecretRefusal>),
    /// The job does not run on a terminal, so it has no screen.
    #[error("job {0} does not run on a terminal, so it has no screen")]
    NoTerminal(JobId),
    /// The job still runs, and must end first.
    #[error("job {0} still runs")]
    StillRunning(JobId),
    /// The job's specification is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The job was not started.
    #[error("no job could be started on {host}")]
    Spawn {
        /// The host, as named by the caller.
        host: String,
        /// The most similar listed host, if this one can't be reached and is not listed.
        nearest: Option<String>,
        /// The cause.
        source: SpawnError,
    },
    /// The host can't be resolved or reached: for a probe, its key, its files or a forward.
    #[error("{host} can't be resolved or reached")]
    Connect {
        /// The host, as named by the caller.
        host: String,
        /// The cause.
        source: Arc<ConnectError>,
    },
    /// A file of a host was not read or written.
    #[cfg(feature = "files")]
    #[error(transparent)]
    Files(Arc<FilesError>),
    /// The job still runs, so its files may be half written.
    #[error("job {0} still runs, so its files may be half written")]
    FilesNotReady(JobId),
    /// The job was not asked to give files back, or was not started.
    #[error("job {0} has no files to fetch: it was started without fetch, or not at all")]
    NothingToFetch(JobId),
    /// Jobs use all copies of a working tree on a host, and it has changed since.
    #[error("jobs use all copies of {0} there, and it has changed since")]
    TreesInUse(String),
    /// A port can't be forwarded.
    #[error(transparent)]
    Forward(Arc<ForwardError>),
    /// The host's key was not written to known_hosts.
    #[error(transparent)]
    Trust(Arc<TrustError>),
    /// The job was not signalled.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// A queue was not changed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Stdin was not written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A pattern takes too long.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    /// No room for another cursor of this job.
    #[error(transparent)]
    TooManyCursors(#[from] TooManyCursors),
    /// The state directory can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A limit or another setting is out of range.
    #[error("{0}")]
    Settings(String),
    /// The demo's SSH server can't start.
    #[error("the demo's SSH server can't start: {0}")]
    Demo(Arc<std::io::Error>),
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No job has this id, or a fleet has no such member.
    UnknownJob,
    /// The job is no longer kept.
    Expired,
    /// No host has this name, a pattern matches none, or ssh_config, which lists hosts, can't be read.
    UnknownHost,
    /// The key of the host is unknown, has changed, or is revoked; or known_hosts can't be written.
    HostKey,
    /// The host does not let the account in.
    Login,
    /// The host can't be reached, or its configuration is wrong.
    Unreachable,
    /// The policy does not allow it, or a secret can't be used.
    Refused,
    /// The command is invalid for any host.
    InvalidCommand,
    /// The command was not started: by the host, or because of a limit, its key, its queue or a shutdown.
    NotStarted,
    /// The job still runs, and must end first.
    StillRunning,
    /// The job was not signalled, or its queue not changed.
    Signal,
    /// Stdin was not written or closed, or the terminal not resized.
    Stdin,
    /// A file was not read or written, or there is none to fetch.
    Files,
    /// A port can't be forwarded.
    Forward,
    /// A pattern takes too long.
    SlowPattern,
    /// A limit is out of range.
    Settings,
    /// The state directory can't be used.
    Storage,
}

impl Error {
    /// Whether a host is the cause of a failed connection, and not the call or this process.
    pub(super) fn is_about_host(&self) -> bool {
        if let Self::Spawn { source, .. } = self {
            source.is_about_host()
        } else {
            true
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownJob(_) | Self::NoMember { .. } | Self::MemberNotStarted { .. } => {
                ErrorKind::UnknownJob
            }
            Self::Expired(_) => ErrorKind::Expired,
            Self::Refused(Refusal::Host(_)) => ErrorKind::UnknownHost,
            Self::Refused(_) | Self::Secret(_) => ErrorKind::Refused,
            Self::NoTerminal(_) | Self::Write(_) => ErrorKind::Stdin,
            Self::StillRunning(_) | Self::FilesNotReady(_) => ErrorKind::StillRunning,
            Self::Spec(_) => ErrorKind::InvalidCommand,
            Self::Spawn { source, .. } => {
                if let SpawnError::Connect(error) = source {
                    kind_of_connection(error)
                } else {
                    ErrorKind::NotStarted
                }
            }
            Self::Connect { source, .. } => kind_of_connection(source),
            Self::Trust(_) => ErrorKind::HostKey,
            Self::Signal(_) | Self::Queue(_) => ErrorKind::Signal,
            #[cfg(feature = "files")]
            Self::Files(_) => ErrorKind::Files,
            Self::NothingToFetch(_) => ErrorKind::Files,
            Self::TreesInUse(_) => ErrorKind::NotStarted,
            Self::Forward(_) => ErrorKind::Forward,
            Self::TooSlow(_) => ErrorKind::SlowPattern,
            Self::Settings(_) => ErrorKind::Settings,
            Self::TooManyCursors(_) | Self::Store(_) | Self::Demo(_) => ErrorKind::Storage,
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

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<SecretRefusal> for Error {
    fn from(refusal: SecretRefusal) -> Self {
        Self::Secret(Box::new(refusal))
    }
}

#[cfg(feature = "files")]
impl From<FilesError> for Error {
    fn from(error: FilesError) -> Self {
        Self::Files(Arc::new(error))
    }
}

/// The outcome of a job, in words.
fn ended(tombstone: &Tombstone) -> String {
    match &tombstone.status.phase {
        Phase::Queued => "was queued".to_owned(),
        Phase::Starting => "was starting".to_owned(),
        Phase::Running => "was running".to_owned(),
        Phase::Ended(outcome) => outcome.to_string(),
    }
}
