//! Errors of files on hosts.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::path::{BadPath, RemotePath};
use super::sftp::{SftpError, SftpStatus};
use super::{Digest, EditError};
use crate::hosts::{BecomeError, ExecAsError, PoolError};
use sshjobs_ssh::{ChannelError, ConnectError};

/// Why a file was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FilesError {
    /// The host can't be reached.
    #[error(transparent)]
    Connect(#[from] Arc<ConnectError>),
    /// Every connection allowed for the host is full.
    #[error("{0}")]
    ConnectionsFull(String),
    /// No channel could be opened.
    #[error("no channel for files can be opened")]
    Channel(#[from] ChannelError),
    /// The host did not change the user.
    #[error(transparent)]
    Become(#[from] Box<BecomeError>),
    /// The host refused an operation on a path, or the session failed during it.
    #[error("can't {operation} {path}")]
    Operation {
        /// The operation, as a verb: `read`, `write`, `list`.
        operation: &'static str,
        /// The path.
        path: RemotePath,
        /// The cause.
        source: SftpError,
    },
    /// The file system is full.
    #[error("can't write {0}: the file system is full")]
    DiskFull(RemotePath),
    /// The path is not usable.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// The path is a directory, and the call needs a file.
    #[error("{0} is a directory")]
    IsDirectory(RemotePath),
    /// The path is a device, a socket or a pipe.
    #[error("{0} is neither a file nor a directory")]
    NotAFile(RemotePath),
    /// The file is too long for this call.
    #[error("{path} has {size} bytes, and this call takes at most {most}")]
    TooLong {
        /// The path.
        path: RemotePath,
        /// Its size.
        size: u64,
        /// The limit.
        most: u64,
    },
    /// The file is longer than the policy allows the caller to copy.
    #[error("{path} has more than {most} bytes, the most that the policy allows")]
    OverLimit {
        /// The path.
        path: RemotePath,
        /// The limit.
        most: u64,
    },
    /// The file has other content than the caller expects.
    #[error("{path} was changed meanwhile: {found}")]
    ChangedMeanwhile {
        /// The path.
        path: RemotePath,
        /// What is there now.
        found: FoundContent,
    },
    /// Another process of sshjobs is changing the file.
    #[error(
        "{path} is being changed by another process; its lock {lock} is still there after {waited:?}"
    )]
    Locked {
        /// The path.
        path: RemotePath,
        /// The lock file.
        lock: RemotePath,
        /// How long was waited.
        waited: Duration,
    },
    /// Another process sends the same content to the file, and has taken the part file.
    #[error("another process sends the same content to {0} at this moment")]
    Contested(RemotePath),
    /// The file exists, and the caller wants a new one.
    #[error("{0} exists")]
    Exists(RemotePath),
    /// An edit does not fit the file.
    #[error("{path}: {source}")]
    Edit {
        /// The path.
        path: RemotePath,
        /// The cause.
        source: EditError,
    },
    /// The content at the target differs from what was sent.
    #[error("{path} was not transferred correctly: its SHA-256 is {found}, not {wanted}")]
    Corrupt {
        /// The path.
        path: RemotePath,
        /// The digest at the target.
        found: Digest,
        /// The digest at the source.
        wanted: Digest,
    },
    /// The owner of a replaced file can't be kept.
    #[error("can't keep the owner of {path}: it belongs to uid {uid}, gid {gid}")]
    Owner {
        /// The path.
        path: RemotePath,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// The file can be written, but not replaced: its directory, its owner or a mount forbids it.
    #[error("{path} can't be replaced, though its content can be written")]
    NotReplaceable {
        /// The path.
        path: RemotePath,
        /// Why it can't be replaced.
        source: Box<Self>,
    },
    /// The connection broke while the file was written in place.
    #[error("{0} may be incomplete: the connection broke while it was written in place")]
    Incomplete(RemotePath),
    /// A file that is written in place has no old content to keep.
    #[error("{0} can't be written in place and kept at the same time")]
    BackupInPlace(RemotePath),
    /// The host needs a tool that it does not have.
    #[error("the host can't compute the SHA-256 of {0}, which this call needs")]
    NoDigest(RemotePath),
    /// A file on this machine can't be read or written.
    #[error("{path}: {source}")]
    Local {
        /// The path here.
        path: String,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// A pattern matches no file.
    #[error("no file matches {0}")]
    NoMatch(RemotePath),
    /// A pattern matches more files than are looked at.
    #[error("{pattern} matches more than {most} files")]
    TooManyMatches {
        /// The pattern.
        pattern: RemotePath,
        /// Maximum number of files.
        most: usize,
    },
    /// The host reports names that lead out of their directory.
    #[error("the host lists the name {name:?} in {directory}, which is no name of a file")]
    HostileName {
        /// The directory.
        directory: RemotePath,
        /// The name.
        name: String,
    },
}

/// The content of a file that is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundContent {
    /// The file has this digest.
    Digest(Digest),
    /// There is no such file.
    NoFile,
    /// The caller may not learn it.
    Hidden,
}

impl From<Option<Digest>> for FoundContent {
    fn from(found: Option<Digest>) -> Self {
        found.map_or(Self::NoFile, Self::Digest)
    }
}

impl fmt::Display for FoundContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => write!(f, "its SHA-256 is {digest}"),
            Self::NoFile => f.write_str("there is no such file"),
            Self::Hidden => f.write_str("it has other content"),
        }
    }
}

impl FilesError {
    /// The same error for a caller who may write the file and not read it.
    #[must_use]
    pub fn without_content(self) -> Self {
        let mut error = self;
        if let Self::ChangedMeanwhile { found, .. } = &mut error
            && matches!(found, FoundContent::Digest(_))
        {
            *found = FoundContent::Hidden;
        }
        if let Self::Edit { source, .. } = &mut error
            && let EditError::NotFound { nearest, .. } = source
        {
            nearest.clear();
        }
        error
    }
}

impl From<ExecAsError> for FilesError {
    fn from(error: ExecAsError) -> Self {
        match error {
            ExecAsError::Channel(error) => error.into(),
            ExecAsError::Become(error) => error.into(),
        }
    }
}

impl FilesError {
    /// Wraps the failure of an operation on a path.
    pub(super) fn on(operation: &'static str, path: &RemotePath) -> impl Fn(SftpError) -> Self {
        let path = path.clone();
        move |source| Self::Operation {
            operation,
            path: path.clone(),
            source,
        }
    }

    /// Wraps the failure of an operation on a local file.
    pub fn local(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Local {
            path,
            source: Arc::new(source),
        }
    }

    /// Whether another attempt over a new connection may succeed.
    pub fn is_lost_connection(&self) -> bool {
        if let Self::Operation { source, .. } = self {
            return matches!(
                source,
                SftpError::ConnectionLost | SftpError::Ended { .. } | SftpError::Silent(_)
            );
        }
        matches!(self, Self::Channel(ChannelError::ConnectionLost))
    }

    /// Whether the host refuses to make a file in the target's directory, to give it an owner or to rename it.
    pub(super) fn is_refusal_to_replace(&self) -> bool {
        if let Self::Operation {
            operation, source, ..
        } = self
        {
            // A mount, in the case of a rename. Other failures may have any cause.
            let is_mounted = *operation == "replace" && source.is(SftpStatus::Failure);
            return is_mounted || source.is(SftpStatus::PermissionDenied);
        }
        matches!(self, Self::Owner { .. })
    }

    /// Whether there is no such file.
    pub fn is_no_such_file(&self) -> bool {
        matches!(self, Self::Operation { source, .. } if source.is(SftpStatus::NoSuchFile))
    }
}

impl From<PoolError<ConnectError>> for FilesError {
    fn from(error: PoolError<ConnectError>) -> Self {
        match error {
            PoolError::Connect(error) => Self::Connect(error),
            full @ PoolError::Full { .. } => Self::ConnectionsFull(full.to_string()),
        }
    }
}
