//! Host trust: known_hosts, host keys and host certificates.
//!
//! [`KnownHosts`] gives a [`Verdict`] on a key or certificate, as ssh would or more strictly.
//! [`PresentedKey`] is a key that a person may add. `HostKeyCheck` continues a handshake only if
//! the verdict allows it.

mod certificate;
mod entry;
mod error;
mod host_key_check;
mod host_key_preference;
mod host_name;
mod key;
mod known_hosts;
mod known_hosts_file;
mod presented_key;
mod proof;
mod verdict;

pub use certificate::{CertificateFault, CertificateRules};
pub use error::{HostKeyError, KnownHostsError, TrustError};
pub use host_key_check::Negotiated;
pub use host_name::HostName;
pub use known_hosts::KnownHosts;
pub use presented_key::PresentedKey;
pub use verdict::Verdict;

pub(super) use host_key_check::{HandshakeError, HostKeyCheck, KeyLook};
pub(super) use host_key_preference::host_keys_to_offer;
pub(super) use key::{copy, short_rsa};
pub(super) use proof::check_agreed;
