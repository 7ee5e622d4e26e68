//! Explains why a host can't be reached or trusted.

use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{CertificateFault, ConfigError, ConnectError, HostKeyError};

/// Explains why a host can't be reached.
pub(super) fn connect(error: &ConnectError, message: String) -> Error {
    match error {
        ConnectError::Config(error) => config(error, message),
        // Before the general case: this process has no file left for a socket, the host may be up.
        ConnectError::Unreachable { source, .. } if is_out_of_files(source) => Error::new(
            Code::Io,
            message,
            "this process has too many files open; raise `ulimit -n`",
        )
        .retryable(),
        ConnectError::Unreachable { .. } => Error::new(
            Code::Unreachable,
            message,
            "check that the host is up and the port is right",
        )
        .retryable(),
        ConnectError::TimedOut { .. } => Error::new(
            Code::Timeout,
            message,
            "the host is slow or does not answer; try again",
        )
        .retryable(),
        ConnectError::HostKey(error) => host_key(error, message),
        ConnectError::Paused { .. } => Error::new(
            Code::AuthFailed,
            message,
            "correct the user or the keys \
                before the next try",
        )
        .retryable(),
        ConnectError::JumpHost { host, source } => jump_host(host, connect(source, message)),
        ConnectError::Auth { .. } => Error::new(
            Code::AuthFailed,
            message,
            "check the user and its keys; a login takes its secrets from an ssh-agent, from \
                passphrase or password in [hosts.NAME], or from a person at the terminal of \
                `sshjobs run`",
        ),
        ConnectError::HungUp { .. } => Error::new(
            Code::Unreachable,
            message,
            "the server may be overloaded (MaxStartups) or have banned this address \
             for a time; see its log",
        )
        .retryable(),
        ConnectError::NoCommonAlgorithm { kind, ours, .. } => Error::new(
            Code::Unsupported,
            message,
            format!("allow one of these in {kind} of the host's sshd_config: {ours}"),
        ),
        ConnectError::Protocol { .. } => Error::new(
            Code::ConnectionLost,
            message,
            "check that an SSH server \
                listens there, and its log",
        )
        .retryable(),
    }
}

fn is_out_of_files(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let number = error.raw_os_error();
    [Errno::EMFILE, Errno::ENFILE]
        .into_iter()
        .any(|known| number == Some(known as i32))
}

fn config(error: &ConfigError, message: String) -> Error {
    match error {
        ConfigError::BadName(_) => {
            Error::new(Code::InvalidArgument, message, "use a host name or alias")
        }
        ConfigError::BadUser(user) if user.is_empty() => Error::new(
            Code::InvalidArgument,
            message,
            "this process's user has no name: set User in ssh_config, or use -l",
        ),
        ConfigError::BadUser(_) => Error::new(
            Code::InvalidArgument,
            message,
            "use the account's name, without spaces and characters of the shell; -l and User take it, too",
        ),
        ConfigError::Nameless(_) => Error::new(
            Code::Io,
            message,
            "put -p, -l, -i, -J and -o into ssh_config, which sshjobs then reads itself; or give the user id a \
             line in /etc/passwd",
        ),
        ConfigError::NoSsh(_) => Error::new(Code::Io, message, "install the OpenSSH client"),
        ConfigError::Arguments(_) => Error::new(
            Code::InvalidArgument,
            message,
            "correct -p, -l, -i, -J or -o; they have the same syntax as in ssh",
        ),
        ConfigError::Rejected { message: words, .. } if words.starts_with("Bad owner") => {
            Error::new(
                Code::UnknownHost,
                message,
                "make yourself the owner of that file, and run chmod 600 on it",
            )
        }
        ConfigError::Rejected { .. } => {
            Error::new(Code::UnknownHost, message, "correct ssh_config")
        }
        ConfigError::TimedOut(_) => Error::new(
            Code::Timeout,
            message,
            "look for a slow `Match exec` in ssh_config",
        )
        .retryable(),
        ConfigError::TooManyJumps(_) => Error::new(
            Code::InvalidArgument,
            message,
            "correct ProxyJump in ssh_config",
        ),
        ConfigError::Unsupported { .. } => Error::new(
            Code::Unsupported,
            message,
            "remove the option for this host; a RemoteCommand becomes the command of the job",
        ),
        ConfigError::ProxyCommand { .. } => Error::new(
            Code::Unsupported,
            message,
            "set allow_proxy_command = true in the configuration, or use ProxyJump",
        ),
        ConfigError::NotUnderstood { .. } => Error::new(
            Code::Unsupported,
            message,
            "install the OpenSSH client, which understands all of it",
        ),
        ConfigError::Unreadable { .. } => Error::new(Code::Io, message, "make the file readable"),
        ConfigError::Token { .. } => Error::new(
            Code::InvalidArgument,
            message,
            "correct the value in ssh_config, or set the variable",
        ),
    }
}

pub(super) fn host_key(error: &HostKeyError, message: String) -> Error {
    match error {
        HostKeyError::Unknown { host, .. } => {
            let hint = format!("{COMPARE} `sshjobs trust HOST`");
            // It is listed under a port or an alias, which may have come from the command line.
            let with_options =
                format!("{hint} (with the same -p, -J and -o; it is listed as {host})");
            let hint = Hint::from(hint).or_for_a_person(with_options);
            Error::new(Code::HostKeyUnknown, message, hint)
        }
        HostKeyError::Changed { other_type, .. } => Error::new(
            if *other_type {
                Code::HostKeyTypeChanged
            } else {
                Code::HostKeyChanged
            },
            message,
            "someone may be in the middle; ask the host's administrator before \
             changing known_hosts",
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
        HostKeyError::TooShort { .. } => Error::new(
            Code::HostKeyWeak,
            message,
            "ask the host's administrator for an ed25519 host key",
        ),
        HostKeyError::NotWritten(_) => Error::new(
            Code::Io,
            message,
            "set UserKnownHostsFile to a file that you may write",
        ),
        HostKeyError::Revoked { .. } => Error::new(
            Code::HostKeyRevoked,
            message,
            "do not use this host until its administrator has replaced the key",
        ),
        HostKeyError::Unreadable(_) => {
            Error::new(Code::Io, message, "make the known_hosts file readable")
        }
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
            "someone may be in the middle; ask the administrator which authority \
             signs the hosts' certificates",
        ),
        CertificateFault::OtherHost
        | CertificateFault::NotAHost
        | CertificateFault::CriticalOption(_)
        | CertificateFault::Signature => (
            Code::HostCertInvalid,
            "ask the host's administrator for a certificate for this name",
        ),
    }
}

/// What to do about a host key that is not listed.
const COMPARE: &str = "compare the fingerprint with the host's own, then accept it with";

/// Explains why a jump host can't be reached. Same codes as for a host, except for a changed key.
fn jump_host(host: &str, mut error: Error) -> Error {
    if matches!(error.code, Code::HostKeyChanged | Code::HostKeyTypeChanged) {
        error.code = Code::JumpHostKeyChanged;
    }
    if error.code == Code::HostKeyUnknown {
        // Options of the command line are for the host behind it.
        error.hint = Hint::from(format!("{COMPARE} `sshjobs trust {host}`"));
    }
    // First, so that `Error::about` can't fill in the host behind the jump host.
    error.hint.replace("trust HOST", &format!("trust {host}"));
    error.hint.replace("[hosts.NAME]", &format!("[hosts.{host}]"));
    error
}
