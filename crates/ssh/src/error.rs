//! Errors of connecting and of channels.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{ConfigError, HostKeyError};

/// Why no usable connection to a host could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name could not be resolved.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No address of the host accepts connections.
    #[error("cannot reach {host} at {address}")]
    Unreachable {
        /// The host, as named by the user.
        host: String,
        /// Address and port.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// A step exceeded its time limit.
    #[error("{host} did not finish {step} within {limit:?}")]
    TimedOut {
        /// The host, as named by the user.
        host: String,
        /// The step that was waited for.
        step: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The host's key was not accepted.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host accepted none of our credentials.
    #[error("{host} does not let {user} in; tried: {tried}")]
    Auth {
        /// The host, as named by the user.
        host: String,
        /// The account.
        user: String,
        /// Methods that were tried, or the reasons why not, in order.
        tried: String,
    },
    /// The host refused several logins in a row, so the next attempt must wait.
    #[error(
        "{host} has refused {user} {times} times in a row; waiting {} s so that it \
         does not ban this address",
        wait.as_secs() + 1
    )]
    Paused {
        /// The host, as named by the user.
        host: String,
        /// The account.
        user: String,
        /// Number of failures.
        times: u32,
        /// Time until the next attempt.
        wait: Duration,
    },
    /// A jump host can't be used.
    #[error("the jump host {host} can't be used")]
    JumpHost {
        /// The jump host, as ssh_config names it.
        host: String,
        /// The cause.
        source: Arc<Self>,
    },
    /// The server and sshjobs support no common algorithm.
    #[error("{host} and sshjobs have no algorithm in common ({kind}): the host offers {theirs}")]
    NoCommonAlgorithm {
        /// The host.
        host: String,
        /// The option of ssh_config(5) that lists such algorithms.
        kind: &'static str,
        /// Names of ours.
        ours: String,
        /// Names of the server's, which may be cut.
        theirs: String,
    },
    /// The host closed the connection before it presented a key.
    #[error("{host} hangs up before the SSH handshake is done, {tries} times in a row")]
    HungUp {
        /// The host, as named by the user.
        host: String,
        /// Number of attempts.
        tries: u32,
    },
    /// The host violates the SSH protocol.
    #[error("the SSH connection to {host} failed")]
    Protocol {
        /// The host, as named by the user.
        host: String,
        /// russh's error.
        source: russh::Error,
    },
}

impl ConnectError {
    /// Whether a login was refused, by the host or by a jump host.
    pub fn is_refused_login(&self) -> bool {
        let mut error = self;
        while let Self::JumpHost { source, .. } = error {
            error = source;
        }
        matches!(error, Self::Auth { .. })
    }

    /// Whether no server answered, at the host or at a jump host.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::HungUp { .. } => true,
            Self::JumpHost { source, .. } => source.is_unreachable(),
            Self::Config(_)
            | Self::TimedOut { .. }
            | Self::HostKey(_)
            | Self::Auth { .. }
            | Self::Paused { .. }
            | Self::NoCommonAlgorithm { .. }
            | Self::Protocol { .. } => false,
        }
    }
}

/// Why a channel can't be opened or used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChannelError {
    /// The server does not open another channel on this connection (MaxSessions).
    #[error("the server refuses to open another channel")]
    OpenRefused,
    /// The server gives this account no terminal (PermitTTY).
    #[error("the server refuses to allocate a terminal")]
    PtyRefused,
    /// The connection was lost.
    #[error("the connection is lost")]
    ConnectionLost,
    /// The server did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// No shell printed the line that every command of ours prints first, in time. Nothing was run.
    #[error(
        "no shell has greeted within {0:?}: a startup file there takes longer, or replaces the shell"
    )]
    NoGreeting(Duration),
    /// What ran in place of the command printed nothing and ended with status 0.
    #[error(
        "the command did not run: its shell ended with status 0 and printed nothing. A startup file there \
         replaces or ends the shell (exec fish, exit), or a forced command runs in its place"
    )]
    Silent,
}

/// Why a target was not reached.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// The host does not forward: `AllowTcpForwarding`, `PermitOpen` (RFC 4254, reason 1).
    #[error("the host's sshd does not allow this forward")]
    Prohibited,
    /// The host does not listen for streams. Its reply has no reason (RFC 4254 §7.1).
    #[error("its sshd refused, and gave no reason")]
    ListenRefused,
    /// The target does not accept the connection, or its name is unknown (reason 2).
    #[error("the host can't connect to the target")]
    ConnectFailed,
    /// The server has no room, or does not know this kind of stream (reasons 3 and 4).
    #[error("the host's sshd does not open the stream")]
    NotOpened,
    /// The connection was lost, or the target did not answer in time.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl From<russh::ChannelOpenFailure> for DialError {
    fn from(reason: russh::ChannelOpenFailure) -> Self {
        use russh::ChannelOpenFailure as Reason;
        match reason {
            Reason::AdministrativelyProhibited => Self::Prohibited,
            Reason::ConnectFailed => Self::ConnectFailed,
            Reason::UnknownChannelType | Reason::ResourceShortage | Reason::Other { .. } => {
                Self::NotOpened
            }
        }
    }
}
