use std::io;
use std::path::PathBuf;

use sshjobs_core::jobs::StoreError;

/// Why tokens can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It can't be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not in the format that sshjobs writes.
    #[error("{} is damaged: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The list of a cluster can't be stored.
    #[error("the tokens of the cluster: {0}")]
    Cluster(#[source] StoreError),
    /// The list of a cluster is not in the format that sshjobs writes.
    #[error("the tokens of the cluster are damaged: {0}")]
    DamagedInCluster(#[source] serde_json::Error),
    /// Other users than its owner may change it.
    #[error("{} may be written by others than its owner", .0.display())]
    Exposed(PathBuf),
    /// A caller can't have this name.
    #[error("{0:?} can't be a caller's name")]
    Name(String),
    /// A caller has a token already.
    #[error("{0} has a token already")]
    Exists(String),
    /// No caller has this name.
    #[error("{0:?} has no token")]
    Unknown(String),
}
