//! Explains why a file of a host was not read or written.

use super::calls::explain_refusal;
use super::connect;
use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{EditError, FilesError, SftpError, SftpStatus, chain};

const DIRECTORY_HINT: &str = "name a file in it; whole directories are copied with recursive=true \
    (ssh_get: with to), or by `sshjobs get -r` and `put -r`";
const NO_MATCH_HINT: &str = "list the directory to see its names";
/// Hint for a file of this machine.
const LOCAL_HINT: &str = "check the path on this machine, and its disk";

pub(super) fn files(error: &FilesError) -> Error {
    let message = chain(error);
    match error {
        FilesError::Connect(source) => connect::connect(source, message),
        FilesError::ConnectionsFull(_) | FilesError::Channel(_) => Error::new(
            Code::ChannelLimit,
            message,
            "the host is busy; try again, or raise MaxSessions in its sshd_config",
        )
        .retryable(),
        FilesError::Become(error) => explain_refusal(error, message),
        FilesError::Operation {
            operation, source, ..
        } => failed(operation, source, message),
        FilesError::DiskFull(_) => Error::new(
            Code::DiskFull,
            message,
            "free some space there; the old file is unchanged",
        ),
        FilesError::Path(_) => Error::invalid(message, "give the path of a file on the host"),
        FilesError::IsDirectory(_) | FilesError::TooManyMatches { .. } => {
            Error::invalid(message, DIRECTORY_HINT)
        }
        FilesError::NotAFile(_) => Error::invalid(message, "only regular files can be copied"),
        FilesError::TooLong { .. } => Error::invalid(
            message,
            "copy it with `sshjobs get`, or edit it with a command",
        ),
        FilesError::OverLimit { .. } => over_limit(message),
        FilesError::ChangedMeanwhile { .. } => Error::new(
            Code::ChangedMeanwhile,
            message,
            Hint::from("read the file again, and repeat the change with its new sha256")
                .or_for_a_person("read the file again, and repeat the change"),
        ),
        FilesError::Locked { .. } => Error::new(
            Code::ChangedMeanwhile,
            message,
            "try again; if no process changes the file, remove the lock",
        )
        .retryable(),
        FilesError::Contested(_) => {
            Error::new(Code::ChangedMeanwhile, message, "try again").retryable()
        }
        FilesError::Exists(_) => Error::new(
            Code::FileExists,
            message,
            "give another path, or replace it",
        ),
        FilesError::Edit { source, .. } => edit(source, message),
        FilesError::Corrupt { .. } => corrupt(message),
        FilesError::Owner { .. } => Error::new(
            Code::PermissionDenied,
            message,
            "write it with become=root (--become root), or remove the file first",
        ),
        FilesError::NotReplaceable { .. } => not_replaceable(message),
        FilesError::Incomplete(_) => incomplete(message),
        FilesError::BackupInPlace(_) => {
            Error::invalid(message, "copy the file first, or omit one of the two")
        }
        FilesError::NoDigest(_) => Error::new(
            Code::Unsupported,
            message,
            "install sha256sum, shasum or openssl there, or omit the expected digest",
        ),
        FilesError::Local { .. } => Error::new(Code::Io, message, LOCAL_HINT),
        FilesError::NoMatch(_) => Error::new(Code::NoSuchFile, message, NO_MATCH_HINT),
        FilesError::HostileName { .. } => Error::new(
            Code::Unsupported,
            message,
            "don't trust this host: its SFTP server is broken or hostile",
        ),
    }
}

fn failed(operation: &str, error: &SftpError, message: String) -> Error {
    match error {
        SftpError::Refused { status, .. } => match status {
            SftpStatus::NoSuchFile if matches!(operation, "write" | "make the directory") => {
                let hint = Hint::from("its directory is missing: add parents=true")
                    .or_for_a_person("its directory is missing: add --parents to make it");
                Error::new(Code::NoSuchFile, message, hint)
            }
            SftpStatus::NoSuchFile => Error::new(
                Code::NoSuchFile,
                message,
                "check the path: list its directory; relative paths begin in the home directory",
            ),
            SftpStatus::PermissionDenied => Error::new(
                Code::PermissionDenied,
                message,
                "use an account that may do this, or another user (become, --become); `ls -l` shows the \
                 permissions",
            ),
            SftpStatus::Unsupported => Error::new(
                Code::Unsupported,
                message,
                "the host's SFTP server lacks this; use a command instead",
            ),
            SftpStatus::Ok | SftpStatus::Eof | SftpStatus::Failure | SftpStatus::Other(_) => {
                Error::new(
                    Code::Io,
                    message,
                    "the host does not say more; try the same with a command there",
                )
            }
        },
        SftpError::ConnectionLost => Error::new(
            Code::ConnectionLost,
            message,
            "try again: the transfer continues where it broke",
        )
        .retryable(),
        SftpError::Silent(_) => Error::new(
            Code::Timeout,
            message,
            "its disk may hang; try again, or raise ConnectTimeout",
        )
        .retryable(),
        SftpError::NoSubsystem | SftpError::Ended { .. } => Error::new(
            Code::Unsupported,
            message,
            "enable `Subsystem sftp internal-sftp` in the host's sshd_config, or copy by a command",
        ),
        SftpError::LongPacket { .. } => Error::new(
            Code::Unsupported,
            message,
            "a startup file of the login shell may print text; let it print only on terminals",
        ),
        SftpError::Protocol(_) => Error::new(
            Code::Unsupported,
            message,
            "its SFTP server is broken; use a command instead",
        ),
    }
}

fn corrupt(message: String) -> Error {
    let hint = "it changed during the transfer, or the disk is damaged; try again";
    Error::new(Code::NotVerified, message, hint).retryable()
}

fn incomplete(message: String) -> Error {
    let hint = "look at the file, and write the whole content again";
    Error::new(Code::NotVerified, message, hint)
}

fn not_replaceable(message: String) -> Error {
    let effect = "which keeps owner, links and mounts; readers may then see half of it";
    let hint = Hint::from(format!("use in_place=true, {effect}"));
    let hint = hint.or_for_a_person(format!("use --in-place, {effect}"));
    Error::new(Code::PermissionDenied, message, hint)
}

fn over_limit(message: String) -> Error {
    Error::new(Code::PolicyDenied, message, "copy a shorter file")
}

fn edit(error: &EditError, message: String) -> Error {
    match error {
        EditError::NotFound { .. } => Error::new(
            Code::EditNotFound,
            message,
            "read the file again, and copy the text exactly, with its spaces",
        ),
        EditError::NotUnique { .. } => Error::new(
            Code::EditNotUnique,
            message,
            "add lines before or after the text until it occurs once",
        ),
        EditError::Empty { .. } => Error::invalid(message, "give the text that is replaced"),
        EditError::NotText => Error::invalid(message, "edits need text; write the whole file"),
    }
}
