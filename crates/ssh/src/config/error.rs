use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a host's name could not be turned into a [`HostConfig`](super::HostConfig).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not a valid host name.
    #[error("{0:?} is not a host name")]
    BadName(String),
    /// The text is not the name of an account.
    #[error("{0:?} is not a user name")]
    BadUser(String),
    /// The `ssh` program refuses a user id without a name, and only it can read options of the command line.
    #[error("ssh can't resolve hosts for the user id {0}, which has no name")]
    Nameless(u32),
    /// The `ssh` program can't be run.
    #[error("the ssh program, which resolves host names, can't be run")]
    NoSsh(#[source] io::Error),
    /// There is no `ssh` program, and ssh_config has a line that only ssh understands.
    #[error("{}:{line}: without an ssh program to ask, {what} is not understood", file.display())]
    NotUnderstood {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The option, or the construct, that is not understood.
        what: String,
    },
    /// An ssh_config file can't be read.
    #[error("can't read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A value has a token or a variable that can't be expanded.
    #[error("{name}: {what} can't be expanded")]
    Token {
        /// The host.
        name: String,
        /// The token, and where it is used.
        what: String,
    },
    /// The host uses ProxyCommand, and the configuration does not allow that.
    #[error("{name} is reached by a ProxyCommand, which runs on this machine")]
    ProxyCommand {
        /// The host.
        name: String,
    },
    /// `ssh -G` failed: ssh_config has a mistake.
    #[error("ssh can't resolve {name}: {message}")]
    Rejected {
        /// The host.
        name: String,
        /// ssh's message.
        message: String,
    },
    /// ssh rejects the arguments of the command line.
    #[error("ssh does not take these options: {0}")]
    Arguments(String),
    /// The ProxyJump chain is too long or has a cycle.
    #[error("{0} is reached through more than {MOST_JUMPS} other hosts, or through itself")]
    TooManyJumps(String),
    /// ssh did not answer.
    #[error("ssh took longer than {0:?} to resolve the host")]
    TimedOut(Duration),
    /// An option that is not supported and must not be ignored.
    #[error("{name} is configured with {option}, which sshjobs does not support")]
    Unsupported {
        /// The host.
        name: String,
        /// The option of ssh_config.
        option: &'static str,
    },
}

/// Longest ProxyJump chain.
pub(super) const MOST_JUMPS: usize = 8;
