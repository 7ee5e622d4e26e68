use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{CertificateFault, ConfigError, KnownHostsError, TrustError};

/// Why no usable connection to a host could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host's name could not be resolved to a configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No address of the host accepts connections.
    #[error("cannot reach {host} at {address}")]
    Unreachable {
        /// What the user calls the host.
        host: String,
        /// Address and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A step took too long.
    #[error("{host} did not finish {step} within {limit:?}")]
    TimedOut {
        /// What the user calls the host.
        host: String,
        /// What was waited for.
        step: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The host could not show that it is the one we know.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host took none of our keys.
    #[error("{host} does not let {user} in; tried: {tried}")]
    Auth {
        /// What the user calls the host.
        host: String,
        /// The account.
        user: String,
        /// What was offered or why it was not, in order.
        tried: String,
    },
    /// The login has failed too often to be tried again so soon.
    #[error(
        "{host} has not let {user} in {times} times in a row; not tried again for {} s, lest it ban our address",
        wait.as_secs() + 1
    )]
    Paused {
        /// What the user calls the host.
        host: String,
        /// The account.
        user: String,
        /// How often.
        times: u32,
        /// For how long.
        wait: Duration,
    },
    /// A host on the way there can't be used.
    #[error("the jump host {host} can't be used")]
    JumpHost {
        /// What the user calls the jump host.
        host: String,
        /// Why.
        source: Arc<Self>,
    },
    /// The host hangs up before it has shown a key.
    #[error("{host} hangs up before the SSH handshake is done, {tries} times in a row")]
    HungUp {
        /// What the user calls the host.
        host: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The host does not speak SSH as we do.
    #[error("the SSH connection to {host} failed")]
    Protocol {
        /// What the user calls the host.
        host: String,
        /// What russh says.
        source: russh::Error,
    },
}

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
        /// What came: the type of a key, or the algorithm of a signature.
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

/// Why a channel can't be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The server does not open another channel on this connection (MaxSessions).
    #[error("the server refuses to open another channel")]
    OpenRefused,
    /// The server gives this account no terminal (PermitTTY).
    #[error("the server refuses to allocate a terminal")]
    PtyRefused,
    /// The connection is gone.
    #[error("the connection is lost")]
    ConnectionLost,
    /// The server did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
}
