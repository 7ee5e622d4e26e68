use std::io;
use std::sync::Arc;

use sshjobs_job::RangeError;

/// Why a host can't be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    /// The name is too long for a host.
    #[error("a host name of {0} bytes is too long")]
    LongName(usize),
    /// The host is not listed.
    #[error("no host is called {name:?}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar listed name.
        nearest: Option<String>,
    },
    /// No listed host has the tag.
    #[error("none of the {total} hosts has the tag {tag:?}")]
    UnknownTag {
        /// The requested tag.
        tag: String,
        /// Number of listed hosts.
        total: usize,
    },
    /// The pattern matches no listed host.
    #[error("{pattern:?} matches none of the {total} hosts")]
    NoMatch {
        /// The requested pattern.
        pattern: String,
        /// Number of listed hosts.
        total: usize,
    },
    /// A range of hosts is invalid.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// ssh_config, which lists hosts, can't be read.
    #[error("can't read ssh_config: {0}")]
    Unreadable(Arc<io::Error>),
}
