//! Why a request failed.

use std::time::Duration;

/// A server's status (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SftpStatus {
    /// Success.
    Ok,
    /// The end of a file or of a directory.
    Eof,
    /// There is no such file.
    NoSuchFile,
    /// The user may not do it.
    PermissionDenied,
    /// Any other failure, such as a full disk.
    Failure,
    /// The server does not know the request.
    Unsupported,
    /// A status that this version does not define.
    Other(u32),
}

impl SftpStatus {
    pub(super) fn of(code: u32) -> Self {
        match code {
            0 => Self::Ok,
            1 => Self::Eof,
            2 => Self::NoSuchFile,
            3 => Self::PermissionDenied,
            4 => Self::Failure,
            8 => Self::Unsupported,
            other => Self::Other(other),
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SftpError {
    /// The server refused the request.
    #[error("{}", refusal(*status, message))]
    Refused {
        /// Its status.
        status: SftpStatus,
        /// Its message, which often says no more than the status.
        message: String,
    },
    /// The connection was lost.
    #[error("the connection was lost")]
    ConnectionLost,
    /// The server ended the SFTP session.
    #[error("the server has ended the SFTP session{}", because(stderr))]
    Ended {
        /// The last text on its stderr.
        stderr: String,
    },
    /// Nothing was received or sent for this time while a reply was due.
    #[error("the server has not answered for {0:?}")]
    Silent(Duration),
    /// The server does not offer SFTP.
    #[error("the host has no SFTP server")]
    NoSubsystem,
    /// The stream has a packet of an impossible length: often text that a login shell prints.
    #[error(
        "expected an SFTP packet, but the server sent {:?}",
        String::from_utf8_lossy(header)
    )]
    LongPacket {
        /// The bytes where a length should be.
        header: [u8; 4],
    },
    /// A packet that the protocol does not allow.
    #[error("the server breaks the SFTP protocol: {0}")]
    Protocol(&'static str),
}

fn refusal(status: SftpStatus, message: &str) -> String {
    match status {
        SftpStatus::NoSuchFile => "no such file".to_owned(),
        SftpStatus::PermissionDenied => "permission denied".to_owned(),
        SftpStatus::Unsupported => "the server does not support this".to_owned(),
        SftpStatus::Ok | SftpStatus::Eof => format!("an unexpected status {status:?}"),
        SftpStatus::Failure if message.is_empty() || message == "Failure" => {
            "the server reports a failure without a reason".to_owned()
        }
        SftpStatus::Failure | SftpStatus::Other(_) => format!("the server reports: {message}"),
    }
}

fn because(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

impl SftpError {
    /// Whether the server refused the request with this status.
    pub fn is(&self, wanted: SftpStatus) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == wanted)
    }
}
