//! Checks of host certificates.

use std::fmt;

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate};

use super::key::short_rsa;

/// Why a host certificate (OpenSSH's PROTOCOL.certkeys) does not vouch for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// The certificate's authority is not listed for the host.
    Foreign,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is for other hosts.
    OtherHost,
    /// It is a user certificate.
    NotAHost,
    /// It has an unknown critical option.
    CriticalOption(String),
    /// Its signature is wrong, or made with an algorithm or key that is too weak.
    Signature,
}

/// Requirements for a certificate.
#[derive(Clone, Copy, Debug)]
pub struct CertificateRules<'a> {
    /// Current time, in seconds since 1970.
    pub now: u64,
    /// Minimum length of an authority's RSA key in bits.
    pub shortest_rsa: u32,
    /// Accepted signature algorithms, separated by commas (CASignatureAlgorithms). Without them any
    /// except SHA-1.
    pub signatures: Option<&'a str>,
}

impl CertificateFault {
    /// The first fault of a certificate with a trusted signer, for the host `principal`. A
    /// certificate that names no hosts is valid for all, as in PROTOCOL.certkeys.
    pub(super) fn find(
        certificate: &Certificate,
        principal: &str,
        rules: CertificateRules<'_>,
    ) -> Option<Self> {
        let now = rules.now;
        let hosts = certificate.valid_principals();

        let algorithm = certificate.signature().algorithm();
        let is_sha1 = algorithm == Algorithm::Rsa { hash: None };
        let algorithm = algorithm.to_string();
        let is_allowed = rules
            .signatures
            .is_none_or(|list| list.split(',').any(|allowed| allowed == algorithm));
        let is_short = short_rsa(certificate.signature_key(), rules.shortest_rsa).is_some();
        let is_weak = is_sha1 || is_short || !is_allowed;

        // The signature is checked before the fields for which it vouches.
        if certificate.cert_type() != CertType::Host {
            Some(Self::NotAHost)
        } else if is_weak || certificate.verify_signature().is_err() {
            Some(Self::Signature)
        } else if now < certificate.valid_after() {
            Some(Self::NotYetValid)
        } else if now >= certificate.valid_before() {
            Some(Self::Expired)
        } else if !hosts.is_empty() && !hosts.iter().any(|host| host == principal) {
            Some(Self::OtherHost)
        } else {
            certificate.critical_options().keys().next().cloned().map(Self::CriticalOption)
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => {
                f.write_str("no authority that known_hosts lists for the host has signed it")
            }
            Self::Expired => f.write_str("it has expired"),
            Self::NotYetValid => f.write_str("it is not valid yet"),
            Self::OtherHost => f.write_str("it is for other hosts"),
            Self::NotAHost => f.write_str("it is a user's, not a host's"),
            Self::CriticalOption(option) => {
                write!(f, "it has the unknown critical option {option:?}")
            }
            Self::Signature => f.write_str("its signature is wrong or too weak"),
        }
    }
}
