//! Why a secret can't be used.

use std::sync::Arc;

use crate::job::Caller;
use crate::scrub::SHORTEST;
use crate::ssh::SecretError;

/// Why a secret of the configuration can't be used. Never contains any of its value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretRefusal {
    /// There is no such secret, or the caller may not use it there.
    #[error("{caller} has no secret {name:?} for {host:?}")]
    NotAllowed {
        /// The caller.
        caller: Caller,
        /// The secret, as named by the caller.
        name: String,
        /// The host.
        host: String,
        /// Names of the secrets that the caller may use there.
        usable: Vec<String>,
    },
    /// Its source has no value.
    #[error("the secret {name:?} can't be read: {source}")]
    Unreadable {
        /// The secret.
        name: String,
        /// The cause.
        source: Arc<SecretError>,
    },
    /// Its value is empty.
    #[error("the secret {0:?} is empty")]
    Empty(String),
    /// Its value is so short that it occurs in output by chance.
    #[error("the secret {0:?} has fewer than {SHORTEST} bytes, so output can't be scrubbed of it")]
    TooShort(String),
    /// A durable job was started without it.
    #[error("the durable job {job} was started without the secret {name:?}")]
    NotOfDurableJob {
        /// The secret.
        name: String,
        /// The job.
        job: crate::job::JobId,
    },
}
