use std::path::PathBuf;

use super::{CertificateFault, HostKeyError, HostName};

/// What known_hosts says about a key that a host presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host is listed with this key.
    Known,
    /// The host is not listed at all.
    Unknown,
    /// The host is listed, but with another key or another type of key.
    Changed {
        /// Where the listed key stands.
        file: PathBuf,
        /// On which line, from 1.
        line: usize,
        /// The listed key's SHA-256 fingerprint.
        listed: String,
        /// No key of the presented type is listed.
        other_type: bool,
    },
    /// The key, or the authority that certified it, is marked as `@revoked` for this host.
    Revoked {
        /// Where that is said.
        file: PathBuf,
        /// On which line, from 1.
        line: usize,
    },
    /// The host presents a certificate that does not hold, and the key in it is not listed either.
    Uncertified(CertificateFault),
}

impl Verdict {
    /// The verdict as the end of the matter: only a known key passes.
    pub(super) fn judge(self, host: &HostName, fingerprint: &str) -> Result<(), HostKeyError> {
        let (host, fingerprint) = (host.as_str().to_owned(), fingerprint.to_owned());
        match self {
            Self::Known => Ok(()),
            Self::Unknown => Err(HostKeyError::Unknown { host, fingerprint }),
            Self::Changed { file, line, listed, other_type } => {
                Err(HostKeyError::Changed { host, fingerprint, file, line, listed, other_type })
            }
            Self::Revoked { file, line } => Err(HostKeyError::Revoked { host, fingerprint, file, line }),
            Self::Uncertified(fault) => Err(HostKeyError::Certificate { host, fingerprint, fault }),
        }
    }
}
