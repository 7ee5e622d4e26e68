//! The stable error codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Code of an error. Codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Code {
    /// No job has this id.
    UnknownJob,
    /// The job is no longer kept; the message has its outcome.
    ExpiredJob,
    /// A value is invalid.
    InvalidArgument,
    /// The host is not configured.
    UnknownHost,
    /// known_hosts does not list the host.
    HostKeyUnknown,
    /// known_hosts lists the host with another key.
    HostKeyChanged,
    /// known_hosts lists the host, but no key of the type that it presents.
    HostKeyTypeChanged,
    /// known_hosts marks the host's key as revoked.
    HostKeyRevoked,
    /// The host's key is too weak.
    HostKeyWeak,
    /// The host's certificate has expired, or is not valid yet.
    HostCertExpired,
    /// The host's certificate is signed by an authority that known_hosts does not list.
    HostCertUntrusted,
    /// The host's certificate is not for this host, or is damaged.
    HostCertInvalid,
    /// known_hosts lists a jump host with another key.
    JumpHostKeyChanged,
    /// The host does not answer.
    Unreachable,
    /// The host rejected the login.
    AuthFailed,
    /// The host did not run the command as another user.
    BecomeFailed,
    /// The connection was lost.
    ConnectionLost,
    /// The host refused to run the command.
    ExecRefused,
    /// The host opens no more channels.
    ChannelLimit,
    /// The maximum number of jobs is running.
    Capacity,
    /// The job's stdin is closed.
    StdinClosed,
    /// The command does not read its stdin.
    Backpressure,
    /// Another process owns the job and does not accept calls for it.
    NotOwner,
    /// The job still runs, or its host still has output of it.
    StillRunning,
    /// The job has ended.
    JobEnded,
    /// The host or sshjobs does not support this.
    Unsupported,
    /// A rule forbids it.
    PolicyDenied,
    /// The command is not known to only look.
    NotReadOnly,
    /// The call waits for an approver. The same call goes through, once, after it is approved.
    ApprovalPending,
    /// An approver has refused the call.
    ApprovalDenied,
    /// No approver has answered in time, or the call was not repeated in time.
    ApprovalExpired,
    /// The call needs an approval, and nobody can be asked.
    ApprovalUnavailable,
    /// The approval is decided, used, expired or void already, so an answer does not count.
    ApprovalClosed,
    /// The caller has no such secret for this host.
    SecretDenied,
    /// The secret can't be read.
    SecretUnavailable,
    /// The call can't be recorded in the audit log, so that it is refused.
    AuditFailed,
    /// The caller has no valid token.
    Unauthenticated,
    /// The caller sends too many requests.
    RateLimited,
    /// There is nothing at this path.
    NotFound,
    /// The program is shutting down.
    ShuttingDown,
    /// The time limit was reached.
    Timeout,
    /// The host has no such file.
    NoSuchFile,
    /// The account may not read or write the file, or not listen on the address.
    PermissionDenied,
    /// The file exists already.
    FileExists,
    /// The file has another content than expected.
    ChangedMeanwhile,
    /// The text of an edit does not occur in the file.
    EditNotFound,
    /// The text of an edit occurs several times.
    EditNotUnique,
    /// The host's file system is full.
    DiskFull,
    /// A transferred content differs from its source.
    NotVerified,
    /// Something listens there already.
    AddressInUse,
    /// Reading or writing failed locally.
    Io,
}

impl Code {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownJob => "unknown_job",
            Self::ExpiredJob => "expired_job",
            Self::InvalidArgument => "invalid_argument",
            Self::UnknownHost => "unknown_host",
            Self::HostKeyUnknown => "host_key_unknown",
            Self::HostKeyChanged => "host_key_changed",
            Self::HostKeyTypeChanged => "host_key_type_changed",
            Self::HostKeyRevoked => "host_key_revoked",
            Self::HostKeyWeak => "host_key_weak",
            Self::HostCertExpired => "host_cert_expired",
            Self::HostCertUntrusted => "host_cert_untrusted",
            Self::HostCertInvalid => "host_cert_invalid",
            Self::JumpHostKeyChanged => "jump_host_key_changed",
            Self::Unreachable => "unreachable",
            Self::AuthFailed => "auth_failed",
            Self::BecomeFailed => "become_failed",
            Self::ConnectionLost => "connection_lost",
            Self::ExecRefused => "exec_refused",
            Self::ChannelLimit => "channel_limit",
            Self::Capacity => "capacity",
            Self::StdinClosed => "stdin_closed",
            Self::Backpressure => "backpressure",
            Self::NotOwner => "not_owner",
            Self::StillRunning => "still_running",
            Self::JobEnded => "job_ended",
            Self::Unsupported => "unsupported",
            Self::PolicyDenied => "policy_denied",
            Self::NotReadOnly => "not_read_only",
            Self::ApprovalPending => "approval_pending",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalUnavailable => "approval_unavailable",
            Self::ApprovalClosed => "approval_closed",
            Self::SecretDenied => "secret_denied",
            Self::SecretUnavailable => "secret_unavailable",
            Self::AuditFailed => "audit_failed",
            Self::Unauthenticated => "unauthenticated",
            Self::RateLimited => "rate_limited",
            Self::NotFound => "not_found",
            Self::ShuttingDown => "shutting_down",
            Self::Timeout => "timeout",
            Self::NoSuchFile => "no_such_file",
            Self::PermissionDenied => "permission_denied",
            Self::FileExists => "file_exists",
            Self::ChangedMeanwhile => "changed_meanwhile",
            Self::EditNotFound => "edit_not_found",
            Self::EditNotUnique => "edit_not_unique",
            Self::DiskFull => "disk_full",
            Self::NotVerified => "not_verified",
            Self::AddressInUse => "address_in_use",
            Self::Io => "io",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [Code; 51] = [
        Code::UnknownJob,
        Code::ExpiredJob,
        Code::InvalidArgument,
        Code::UnknownHost,
        Code::HostKeyUnknown,
        Code::HostKeyChanged,
        Code::HostKeyTypeChanged,
        Code::HostKeyRevoked,
        Code::HostKeyWeak,
        Code::HostCertExpired,
        Code::HostCertUntrusted,
        Code::HostCertInvalid,
        Code::JumpHostKeyChanged,
        Code::Unreachable,
        Code::AuthFailed,
        Code::BecomeFailed,
        Code::ConnectionLost,
        Code::ExecRefused,
        Code::ChannelLimit,
        Code::Capacity,
        Code::StdinClosed,
        Code::Backpressure,
        Code::NotOwner,
        Code::StillRunning,
        Code::JobEnded,
        Code::Unsupported,
        Code::PolicyDenied,
        Code::NotReadOnly,
        Code::ApprovalPending,
        Code::ApprovalDenied,
        Code::ApprovalExpired,
        Code::ApprovalUnavailable,
        Code::ApprovalClosed,
        Code::SecretDenied,
        Code::SecretUnavailable,
        Code::AuditFailed,
        Code::Unauthenticated,
        Code::RateLimited,
        Code::NotFound,
        Code::ShuttingDown,
        Code::Timeout,
        Code::NoSuchFile,
        Code::PermissionDenied,
        Code::FileExists,
        Code::ChangedMeanwhile,
        Code::EditNotFound,
        Code::EditNotUnique,
        Code::DiskFull,
        Code::NotVerified,
        Code::AddressInUse,
        Code::Io,
    ];

    #[test]
    fn a_code_has_one_name_wherever_it_is_read() {
        for code in ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
        assert_eq!(
            ALL.map(Code::as_str).into_iter().collect::<BTreeSet<_>>().len(),
            ALL.len()
        );
    }
}
