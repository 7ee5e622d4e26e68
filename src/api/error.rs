use std::error::Error as StdError;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::Ending;
use crate::job::{PlanError, TooSlow};
use crate::runner::{SignalError, SpawnError, Tombstone, WriteError, chain};
use crate::ssh::{CertificateFault, ChannelError, ConfigError, ConnectError, HostKeyError};

/// What went wrong, by a name that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Code {
    /// No job has this id.
    UnknownJob,
    /// The job is over and no longer kept; the message tells its outcome.
    ExpiredJob,
    /// A value can't be what was given.
    InvalidArgument,
    /// The host is not one of those configured.
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
    /// The host does not accept our keys.
    AuthFailed,
    /// The connection broke.
    ConnectionLost,
    /// The host refused to run the command.
    ExecRefused,
    /// The host opens no more channels.
    ChannelLimit,
    /// There are as many jobs as there may be.
    Capacity,
    /// The job's stdin has ended.
    StdinClosed,
    /// The command does not read its stdin.
    Backpressure,
    /// The job still runs.
    StillRunning,
    /// The job is over.
    JobEnded,
    /// The host can't do this, or sshjobs can't yet.
    Unsupported,
    /// The rules forbid it.
    PolicyDenied,
    /// It took too long.
    Timeout,
    /// Reading or writing failed on this side.
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
            Self::ConnectionLost => "connection_lost",
            Self::ExecRefused => "exec_refused",
            Self::ChannelLimit => "channel_limit",
            Self::Capacity => "capacity",
            Self::StdinClosed => "stdin_closed",
            Self::Backpressure => "backpressure",
            Self::StillRunning => "still_running",
            Self::JobEnded => "job_ended",
            Self::Unsupported => "unsupported",
            Self::PolicyDenied => "policy_denied",
            Self::Timeout => "timeout",
            Self::Io => "io",
        }
    }
}

/// Why a call failed, and what to do next. A command that fails is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Error {
    /// What went wrong, by a name that does not change.
    pub code: Code,
    /// What went wrong, in this case.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Of a write that was given up: how many bytes had gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub bytes_written: Option<usize>,
}

impl Error {
    /// An error that the same call will meet again.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into(), retryable: false, bytes_written: None }
    }

    /// The same error, with the host's name where the hint speaks of a HOST.
    #[must_use]
    pub(super) fn about(self, host: &str) -> Self {
        let hint = self
            .hint
            .replace("trust HOST", &format!("trust {host}"))
            .replace("[hosts.NAME]", &format!("[hosts.{host}]"));
        Self { hint, ..self }
    }

    /// The same error, which may pass.
    #[must_use]
    pub fn retryable(self) -> Self {
        Self { retryable: true, ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.code.as_str(), self.message, self.hint)
    }
}

impl StdError for Error {}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Self {
        let message = chain(&error);
        match error {
            SpawnError::Capacity { .. } => {
                Self::new(Code::Capacity, message, "wait for a job to end, or end one with ssh_signal")
                    .retryable()
            }
            SpawnError::Connect(error) => connect(&error, message),
            SpawnError::ConnectionsFull(_) => {
                Self::new(Code::ChannelLimit, message, "wait for a job on this host to end").retryable()
            }
            SpawnError::Channel { source, .. } => channel(&source, message),
            SpawnError::ExecRefused(_) => Self::new(
                Code::ExecRefused,
                message,
                "the account may be restricted; try the command with ssh on a terminal",
            ),
            SpawnError::Plan(PlanError::BareHost(_)) => {
                Self::new(Code::Unsupported, message, "leave cwd and env away for this host")
            }
            SpawnError::Plan(PlanError::EnvName(_)) => {
                let hint = "a name has letters, digits and _, and does not begin with a digit";
                Self::new(Code::InvalidArgument, message, hint)
            }
            SpawnError::Plan(PlanError::Nul(_)) => {
                Self::new(Code::InvalidArgument, message, "take the NUL out")
            }
            SpawnError::Plan(PlanError::TooLong(_)) => {
                Self::new(Code::InvalidArgument, message, "send it as stdin, to `sh -s` for example")
            }
            SpawnError::Expired(tombstone) => {
                expired(&tombstone, "use a new idempotency_key to run it again")
            }
            SpawnError::Abandoned => {
                Self::new(Code::JobEnded, message, "start it again if it is still wanted")
            }
            SpawnError::KeyReused => {
                Self::new(Code::InvalidArgument, message, "use a new idempotency_key for each new job")
            }
            SpawnError::ShuttingDown => Self::new(Code::PolicyDenied, message, "start it again, then retry"),
        }
    }
}

/// A job that is known by its tombstone only.
pub(super) fn expired(tombstone: &Tombstone, hint: &str) -> Error {
    let Tombstone { id, host, status } = tombstone;
    let message = format!(
        "job {id} on {host} {} after {} lines, and is no longer kept",
        Ending::of(&status.phase),
        status.total_lines
    );
    Error::new(Code::ExpiredJob, message, hint)
}

fn connect(error: &ConnectError, message: String) -> Error {
    match error {
        ConnectError::Config(error) => config(error, message),
        ConnectError::Unreachable { source, .. } if is_out_of_files(source) => {
            Error::new(Code::Io, message, "this process has too many files open; raise `ulimit -n`").retryable()
        }
        ConnectError::Unreachable { .. } => {
            Error::new(Code::Unreachable, message, "check that the host is up and the port is right")
                .retryable()
        }
        ConnectError::TimedOut { .. } => {
            Error::new(Code::Timeout, message, "the host is slow or does not answer; try again").retryable()
        }
        ConnectError::HostKey(error) => host_key(error, message),
        ConnectError::Paused { .. } => {
            Error::new(Code::AuthFailed, message, "correct the user or the keys before the next try")
                .retryable()
        }
        ConnectError::JumpHost { host, source } => jump_host(host, connect(source, message)),
        ConnectError::Auth { .. } => Error::new(
            Code::AuthFailed,
            message,
            "check the user and its keys; what a login asks for comes from an ssh-agent, from passphrase or password in \
             [hosts.NAME], or from a person at the terminal of `sshjobs run`",
        ),
        ConnectError::HungUp { .. } => Error::new(
            Code::Unreachable,
            message,
            "the server may be overloaded (MaxStartups) or have banned this address for a while; its log tells",
        )
        .retryable(),
        ConnectError::Protocol { .. } => {
            Error::new(Code::ConnectionLost, message, "check that an SSH server listens there, and its log")
                .retryable()
        }
    }
}

fn is_out_of_files(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let number = error.raw_os_error();
    [Errno::EMFILE, Errno::ENFILE].into_iter().any(|known| number == Some(known as i32))
}

fn config(error: &ConfigError, message: String) -> Error {
    match error {
        ConfigError::BadName(_) => Error::new(Code::InvalidArgument, message, "use a host name or alias"),
        ConfigError::NoSsh(_) => Error::new(Code::Io, message, "install the OpenSSH client"),
        ConfigError::Arguments(_) => {
            Error::new(Code::InvalidArgument, message, "correct -p, -l, -i, -J or -o; they are ssh's")
        }
        ConfigError::Rejected { .. } => Error::new(Code::UnknownHost, message, "correct ssh_config"),
        ConfigError::TimedOut(_) => {
            Error::new(Code::Timeout, message, "look for a slow `Match exec` in ssh_config").retryable()
        }
        ConfigError::TooManyJumps(_) => {
            Error::new(Code::InvalidArgument, message, "correct ProxyJump in ssh_config")
        }
        ConfigError::Unsupported { .. } => Error::new(
            Code::Unsupported,
            message,
            "remove the option for this host; the command goes with the job",
        ),
        ConfigError::ProxyCommand { .. } => Error::new(
            Code::Unsupported,
            message,
            "set allow_proxy_command = true in the configuration, or use ProxyJump",
        ),
        ConfigError::NotUnderstood { .. } => {
            Error::new(Code::Unsupported, message, "install the OpenSSH client, which understands all of it")
        }
        ConfigError::Unreadable { .. } => Error::new(Code::Io, message, "make the file readable"),
        ConfigError::Token { .. } => {
            Error::new(Code::InvalidArgument, message, "correct the value in ssh_config, or set the variable")
        }
    }
}

fn host_key(error: &HostKeyError, message: String) -> Error {
    match error {
        HostKeyError::Unknown { .. } => Error::new(
            Code::HostKeyUnknown,
            message,
            "compare the fingerprint with the host's own, then accept it with `sshjobs trust HOST`",
        ),
        HostKeyError::Changed { other_type, .. } => Error::new(
            if *other_type { Code::HostKeyTypeChanged } else { Code::HostKeyChanged },
            message,
            "someone may be in the middle; ask the host's administrator before changing known_hosts",
        ),
        HostKeyError::Certificate { fault, .. } => {
            let (code, hint) = certificate(fault);
            Error::new(code, message, hint)
        }
        HostKeyError::NotAgreed { .. } => Error::new(
            Code::HostKeyWeak,
            message,
            "do not use this host before its administrator has looked at its SSH server",
        ),
        HostKeyError::TooShort { .. } => {
            Error::new(Code::HostKeyWeak, message, "ask the host's administrator for an ed25519 host key")
        }
        HostKeyError::NotWritten(_) => {
            Error::new(Code::Io, message, "set UserKnownHostsFile to a file that you may write")
        }
        HostKeyError::Revoked { .. } => Error::new(
            Code::HostKeyRevoked,
            message,
            "do not use this host until its administrator has replaced the key",
        ),
        HostKeyError::Unreadable(_) => Error::new(Code::Io, message, "make the known_hosts file readable"),
    }
}

fn certificate(fault: &CertificateFault) -> (Code, &'static str) {
    match fault {
        CertificateFault::Expired | CertificateFault::NotYetValid => (
            Code::HostCertExpired,
            "check this machine's clock; then ask the host's administrator to renew it",
        ),
        CertificateFault::Foreign => (
            Code::HostCertUntrusted,
            "someone may be in the middle; ask the administrator which authority signs the hosts' certificates",
        ),
        CertificateFault::OtherHost
        | CertificateFault::NotAHost
        | CertificateFault::CriticalOption(_)
        | CertificateFault::Signature => {
            (Code::HostCertInvalid, "ask the host's administrator for a certificate for this name")
        }
    }
}

/// What keeps us from a jump host is told like what keeps us from a host, but for a key that has changed on the way.
fn jump_host(host: &str, error: Error) -> Error {
    let changed = matches!(error.code, Code::HostKeyChanged | Code::HostKeyTypeChanged);
    let code = if changed { Code::JumpHostKeyChanged } else { error.code };
    Error { code, hint: error.hint.replace("trust HOST", &format!("trust {host}")), ..error }
}

fn channel(error: &ChannelError, message: String) -> Error {
    match error {
        ChannelError::OpenRefused => {
            Error::new(Code::ChannelLimit, message, "wait for a job on this host to end").retryable()
        }
        ChannelError::PtyRefused => {
            Error::new(Code::Unsupported, message, "run it without a terminal (pty=false)")
        }
        ChannelError::ConnectionLost => Error::new(Code::ConnectionLost, message, "try again").retryable(),
        ChannelError::TimedOut(_) => Error::new(Code::Timeout, message, "try again").retryable(),
    }
}

impl From<SignalError> for Error {
    fn from(error: SignalError) -> Self {
        let message = chain(&error);
        match error {
            SignalError::JobEnded => {
                Self::new(Code::JobEnded, message, "nothing is left to signal; ssh_tail tells how it ended")
            }
            SignalError::OtherMachine { .. } => Self::new(
                Code::ConnectionLost,
                message,
                "nothing was signalled; look for processes with SSHJOBS_JOB in their environment on the host",
            ),
            SignalError::Unreachable(_) => {
                Self::new(Code::ConnectionLost, message, "the processes may still run; try again").retryable()
            }
            SignalError::TimedOut(_) => {
                Self::new(Code::Timeout, message, "look with ssh_jobs whether the job has ended").retryable()
            }
        }
    }
}

impl From<TooSlow> for Error {
    fn from(error: TooSlow) -> Self {
        let message = error.to_string();
        match error {
            TooSlow::Pattern(_) => {
                let hint = "use a simpler pattern: fewer or smaller counted repetitions";
                Self::new(Code::Timeout, message, hint)
            }
            TooSlow::Busy => Self::new(Code::Timeout, message, "try again in a moment").retryable(),
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let message = chain(&error);
        match error {
            WriteError::StdinClosed => {
                Self::new(Code::StdinClosed, message, "start the job again to write to it")
            }
            WriteError::Starting => {
                Self::new(Code::Backpressure, message, "write once ssh_tail tells that it runs").retryable()
            }
            WriteError::JobEnded => Self::new(Code::JobEnded, message, "ssh_tail tells how it ended"),
            WriteError::Backpressure { written } => Self {
                bytes_written: Some(written),
                ..Self::new(Code::Backpressure, message, "write the rest once the command reads").retryable()
            },
            WriteError::NoTerminal => {
                Self::new(Code::InvalidArgument, message, "start the job with pty=true to give it a size")
            }
            WriteError::Channel(source) => channel(&source, message),
        }
    }
}
