use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{ConfigError, HostKeyError};

/// Why no usable connection to a host could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name could not be resolved to a configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No address of the host accepts connections.
    #[error("cannot reach {host} at {address}")]
    Unreachable {
        /// The host, as the user named it.
        host: String,
        /// Address and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A step took too long.
    #[error("{host} did not finish {step} within {limit:?}")]
    TimedOut {
        /// The host, as the user named it.
        host: String,
        /// What was waited for.
        step: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The host's key was not accepted.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host took none of our keys.
    #[error("{host} does not let {user} in; tried: {tried}")]
    Auth {
        /// The host, as the user named it.
        host: String,
        /// The account.
        user: String,
        /// What was offered or why it was not, in order.
        tried: String,
    },
    /// Logins have failed too often to be tried again now.
    #[error(
        "{host} has not let {user} in {times} times in a row; not tried again for {} s, lest it ban our address",
        wait.as_secs() + 1
    )]
    Paused {
        /// The host, as the user named it.
        host: String,
        /// The account.
        user: String,
        /// How often.
        times: u32,
        /// For how long.
        wait: Duration,
    },
    /// A host on the way there can't be used.
    #[error("the jump host {host} can't be used")]
    JumpHost {
        /// The jump host, as ssh_config names it.
        host: String,
        /// Why.
        source: Arc<Self>,
    },
    /// The host closes the connection before it presents a key.
    #[error("{host} hangs up before the SSH handshake is done, {tries} times in a row")]
    HungUp {
        /// The host, as the user named it.
        host: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The host does not keep to the SSH protocol.
    #[error("the SSH connection to {host} failed")]
    Protocol {
        /// The host, as the user named it.
        host: String,
        /// What russh says.
        source: russh::Error,
    },
}

impl ConnectError {
    /// Whether the account is not let in, at the host or at one on the way there.
    pub fn is_refused_login(&self) -> bool {
        let mut error = self;
        while let Self::JumpHost { source, .. } = error {
            error = source;
        }
        matches!(error, Self::Auth { .. })
    }

    /// Whether nobody answers, at the host or at one on the way there.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::HungUp { .. } => true,
            Self::JumpHost { source, .. } => source.is_unreachable(),
            Self::Config(_)
            | Self::TimedOut { .. }
            | Self::HostKey(_)
            | Self::Auth { .. }
            | Self::Paused { .. }
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
    /// The connection is gone.
    #[error("the connection is lost")]
    ConnectionLost,
    /// The server did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
}
