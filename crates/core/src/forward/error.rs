//! Why a forward can't be opened.

use std::io;
use std::sync::Arc;

use crate::hosts::PoolError;
use sshjobs_ssh::{ConnectError, DialError, Endpoint};

/// Why a forward can't be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForwardError {
    /// The host can't be reached.
    #[error(transparent)]
    Connect(#[from] Arc<ConnectError>),
    /// Too many connections are in use.
    #[error("{0}")]
    ConnectionsFull(String),
    /// This machine can't listen there.
    #[error("can't listen on {at}: {source}")]
    Listen {
        /// Where.
        at: Endpoint,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// The host does not listen there.
    #[error("the host does not listen on {at}: {source}")]
    RemoteListen {
        /// Where.
        at: Endpoint,
        /// The cause.
        source: DialError,
    },
    /// The caller has too many forwards.
    #[error("{most} forwards are open")]
    TooMany {
        /// The maximum.
        most: usize,
    },
    /// The configuration allows only listeners that the own machine can reach.
    #[error("{0} could be reached from other machines")]
    NotLoopback(Endpoint),
    /// There is no such forward of the caller.
    #[error("there is no forward {0:?}")]
    Unknown(String),
}

impl From<PoolError<ConnectError>> for ForwardError {
    fn from(error: PoolError<ConnectError>) -> Self {
        match error {
            PoolError::Connect(error) => Self::Connect(error),
            full @ PoolError::Full { .. } => Self::ConnectionsFull(full.to_string()),
        }
    }
}
