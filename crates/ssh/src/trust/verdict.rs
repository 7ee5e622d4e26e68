use std::path::PathBuf;

use super::{CertificateFault, HostKeyError, HostName};

/// Verdict of known_hosts on a key that a host presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host is listed with this key.
    Known,
    /// The host is not listed at all.
    Unknown,
    /// The host is listed, but with another key or another type of key.
    Changed {
        /// File with the listed key.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The listed key's SHA-256 fingerprint.
        listed: String,
        /// No key of the presented type is listed.
        other_type: bool,
    },
    /// The key, or the authority that certified it, is marked as `@revoked` for this host.
    Revoked {
        /// File with the revocation.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The host presents an invalid certificate, and its key is not listed.
    Uncertified(CertificateFault),
}

impl Verdict {
    /// Converts the verdict into a result: only a known key passes.
    pub(super) fn judge(self, host: &HostName, fingerprint: &str) -> Result<(), HostKeyError> {
        let host = host.as_str().to_owned();
        let fingerprint = fingerprint.to_owned();
        match self {
            Self::Known => Ok(()),
            Self::Unknown => Err(HostKeyError::Unknown { host, fingerprint }),
            Self::Changed {
                file,
                line,
                listed,
                other_type,
            } => Err(HostKeyError::Changed {
                host,
                fingerprint,
                file,
                line,
                listed,
                other_type,
            }),
            Self::Revoked { file, line } => Err(HostKeyError::Revoked {
                host,
                fingerprint,
                file,
                line,
            }),
            Self::Uncertified(fault) => Err(HostKeyError::Certificate {
                host,
                fingerprint,
                fault,
            }),
        }
    }
}
