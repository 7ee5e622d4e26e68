use std::io;
use std::path::PathBuf;

use super::CertificateFault;

/// Why a host's key was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// known_hosts does not list the host.
    #[error("{host} presents a key that known_hosts does not list: {fingerprint}")]
    Unknown {
        /// As it would be written into known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint.
        fingerprint: String,
    },
    /// known_hosts lists the host with another key.
    #[error(
        "the key of {host} has changed: it presents {fingerprint}, but {}:{line} lists {listed}",
        file.display()
    )]
    Changed {
        /// As it would be written into known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key presented.
        fingerprint: String,
        /// Where another key is listed.
        file: PathBuf,
        /// On which line.
        line: usize,
        /// That key's SHA-256 fingerprint.
        listed: String,
        /// No key of the presented type is listed.
        other_type: bool,
    },
    /// known_hosts marks the key as revoked.
    #[error("the key of {host} is revoked by {}:{line}: {fingerprint}", file.display())]
    Revoked {
        /// As it would be written into known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key presented.
        fingerprint: String,
        /// Where it is revoked.
        file: PathBuf,
        /// On which line.
        line: usize,
    },
    /// The host presents a certificate that does not vouch for it, and a key that is not listed.
    #[error("the certificate of {host} does not hold: {fault}; its key is {fingerprint}")]
    Certificate {
        /// As it would be written into known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key in the certificate.
        fingerprint: String,
        /// Why it does not hold.
        fault: CertificateFault,
    },
    /// The host proves itself with another algorithm than was agreed on.
    #[error("the host key proof was to be {expected}, and came as {came:?}: someone may be in the middle")]
    NotAgreed {
        /// What the server presented: a key type or a signature algorithm.
        came: String,
        /// What was agreed on.
        expected: String,
    },
    /// The host presents an RSA key that is too short to prove anything.
    #[error("{host} presents an RSA key of {bits} bits; less than 2048 prove nothing")]
    TooShort {
        /// As it would be written into known_hosts.
        host: String,
        /// Its length.
        bits: u32,
    },
    /// The key of a new host was to be accepted, and could not be written down.
    #[error("a new host's key can't be kept")]
    NotWritten(#[source] Box<TrustError>),
    /// known_hosts exists and can't be read, so nothing can be trusted.
    #[error(transparent)]
    Unreadable(#[from] KnownHostsError),
}

/// Why a key was not written into known_hosts.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// known_hosts speaks against it.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// ssh_config names no file to write it to.
    #[error("{0} has no UserKnownHostsFile to write its key to")]
    NoFile(String),
    /// The file can't be written.
    #[error("can't write {}", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A known_hosts file that exists but can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read {}", file.display())]
pub struct KnownHostsError {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub source: io::Error,
}
