use std::io;
use std::sync::Arc;

use crate::job::RangeError;

/// Why a host can't be named.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No host's name is so long.
    #[error("a host name of {0} bytes can't be one")]
    LongName(usize),
    /// It is not one of those listed.
    #[error("there is no host {name:?}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The listed host that was most likely meant.
        nearest: Option<String>,
    },
    /// No listed host has the tag.
    #[error("none of the {total} hosts has the tag {tag:?}")]
    UnknownTag {
        /// What was asked for.
        tag: String,
        /// Hosts that are listed.
        total: usize,
    },
    /// No listed host is meant.
    #[error("{pattern:?} matches none of the {total} hosts")]
    NoMatch {
        /// What was asked for.
        pattern: String,
        /// Hosts that are listed.
        total: usize,
    },
    /// A range of hosts can't be meant.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// ssh_config, which lists hosts, can't be read.
    #[error("can't read ssh_config: {0}")]
    Unreadable(Arc<io::Error>),
}
