//! Why a secret can't be used.

use sshjobs_job::Caller;
use sshjobs_output::scrub::MIN_SECRET_BYTES;

/// Why a secret of the configuration can't be used. Never contains any of its value.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// Its source has no value. The log says why.
    #[error("the secret {0:?} can't be read")]
    Unreadable(String),
    /// Its value is empty.
    #[error("the secret {0:?} is empty")]
    Empty(String),
    /// Its value is so short that it occurs in output by chance.
    #[error(
        "the secret {0:?} has fewer than {MIN_SECRET_BYTES} bytes, so it can't be hidden in output"
    )]
    TooShort(String),
    /// Its value has more than 64 KiB.
    #[error("the secret {0:?} has more than 64 KiB")]
    TooLong(String),
    /// A NUL can't be part of a variable.
    #[error("the secret {0:?} contains a NUL character")]
    Nul(String),
    /// A durable job was started without it, or with another value.
    #[error("the durable job {job} was started without this value of the secret {name:?}")]
    NotOfDurableJob {
        /// The secret.
        name: String,
        /// The job.
        job: sshjobs_job::JobId,
    },
}
