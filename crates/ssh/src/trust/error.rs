//! Errors of host trust.

use std::io;
use std::path::PathBuf;

use super::CertificateFault;

/// Why a host's key was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// known_hosts does not list the host.
    #[error("{host} presents a key that known_hosts does not list: {fingerprint}")]
    Unknown {
        /// In the form used in known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint.
        fingerprint: String,
    },
    /// known_hosts lists another key for the host.
    #[error(
        "the key of {host} has changed: it presents {fingerprint}, but {}:{line} lists {listed}",
        file.display()
    )]
    Changed {
        /// In the form used in known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key presented.
        fingerprint: String,
        /// File with the listed key.
        file: PathBuf,
        /// Line of that key.
        line: usize,
        /// SHA-256 fingerprint of the listed key.
        listed: String,
        /// Whether no key of the presented type is listed.
        other_type: bool,
    },
    /// known_hosts marks the key as revoked.
    #[error("the key of {host} is revoked by {}:{line}: {fingerprint}", file.display())]
    Revoked {
        /// In the form used in known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key presented.
        fingerprint: String,
        /// File with the revocation.
        file: PathBuf,
        /// Line of the revocation.
        line: usize,
    },
    /// The host presents an invalid certificate, and its key is not listed.
    #[error("the certificate of {host} does not hold: {fault}; its key is {fingerprint}")]
    Certificate {
        /// In the form used in known_hosts.
        host: String,
        /// Type and SHA-256 fingerprint of the key in the certificate.
        fingerprint: String,
        /// Why the certificate is invalid.
        fault: CertificateFault,
    },
    /// The host's key or its signature does not have the negotiated algorithm.
    #[error(
        "the host key proof must use {expected}, but uses {came:?}: someone may be in the middle"
    )]
    NotAgreed {
        /// The key type or signature algorithm that the server presented.
        came: String,
        /// The negotiated algorithm.
        expected: String,
    },
    /// The host presents an RSA key that is too short to be secure.
    #[error("{host} presents an RSA key of {bits} bits, which is too short")]
    TooShort {
        /// In the form used in known_hosts.
        host: String,
        /// Its length in bits.
        bits: u32,
    },
    /// The key of a new host was accepted and could not be written to known_hosts.
    #[error("the key of a new host can't be written to known_hosts")]
    NotWritten(#[source] Box<TrustError>),
    /// known_hosts exists and can't be read, so no key can be trusted.
    #[error(transparent)]
    Unreadable(#[from] KnownHostsError),
}

/// Why a key was not written into known_hosts.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// known_hosts conflicts with it.
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
        /// The cause.
        source: io::Error,
    },
}

/// A known_hosts file that exists but can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read {}", file.display())]
pub struct KnownHostsError {
    /// The file.
    pub file: PathBuf,
    /// The cause.
    pub source: io::Error,
}
