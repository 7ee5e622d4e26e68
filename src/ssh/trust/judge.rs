use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::PublicKeyOrCertificate;

use super::{CertificateRules, HostName, KnownHosts, Verdict};
use crate::ssh::HostConfig;

/// What known_hosts says of what a host presents.
pub(super) fn verdict_on(
    host: &HostConfig,
    known: &KnownHosts,
    presented: &PublicKeyOrCertificate,
) -> Verdict {
    let name = HostName::of(host);
    match presented {
        PublicKeyOrCertificate::PublicKey { key, .. } => known.verdict(&name, key),
        PublicKeyOrCertificate::Certificate(certificate) => {
            // A clock before 1970 makes every certificate one of the future.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
            let signatures = host.ca_signature_algorithms.as_deref();
            let rules = CertificateRules { now, shortest_rsa: host.shortest_rsa, signatures };
            known.verdict_on_certificate(&name, certificate, rules)
        }
    }
}
