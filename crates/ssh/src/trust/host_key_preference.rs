use std::borrow::Cow;

use russh::Preferred;
use russh::keys::Algorithm;

use super::{HostName, KnownHosts};

/// Host key algorithms to request: first the types listed for the host, so that it proves itself
/// with a known key. If an authority is listed, certificates come first. Never an algorithm that
/// `allowed` (HostKeyAlgorithms) excludes, and never `ssh-rsa` with SHA-1.
pub(crate) fn host_keys_to_offer(
    known: &KnownHosts,
    host: &HostName,
    allowed: Option<&str>,
) -> Preferred {
    let mut plain = safe_key_types();
    plain.retain(|algorithm| is_allowed(allowed, algorithm.as_ref()));
    let listed = known.key_types(host);
    // Stable, so that the types keep their order within each half.
    plain.sort_by_key(|ours| !is_listed(&listed, ours));
    let mut certified = if known.has_authority(host) {
        safe_key_types()
    } else {
        Vec::new()
    };
    certified.retain(|algorithm| is_allowed(allowed, &algorithm.to_certificate_type()));
    Preferred {
        key: plain.into(),
        host_key_certificates: certified.into(),
        ..Preferred::DEFAULT
    }
}

fn is_allowed(allowed: Option<&str>, name: &str) -> bool {
    allowed.is_none_or(|allowed| allowed.split(',').any(|allowed| allowed == name))
}

fn is_listed(listed: &[Algorithm], ours: &Algorithm) -> bool {
    // A key in known_hosts has no hash: only signature algorithms have one (RFC 8332 §3).
    listed.iter().any(|key| key == ours || (is_rsa(key) && is_rsa(ours)))
}

fn safe_key_types() -> Vec<Algorithm> {
    let ours: &Cow<'_, [Algorithm]> = &Preferred::DEFAULT.key;
    ours.iter()
        .filter(|algorithm| **algorithm != Algorithm::Rsa { hash: None })
        .cloned()
        .collect()
}

fn is_rsa(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Rsa { .. })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn offer(lines: &str) -> Preferred {
        let mut known = KnownHosts::default();
        known.add(Path::new("kh"), lines);
        host_keys_to_offer(&known, &HostName::new("web1", 22), None)
    }

    const KEY: &str = "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMxBTpMIGvo7CnordO7wP0QQRqpBwUjOLl4eMhfucfE1sjTYyK5wmTl1UqoSDS1PtRVTBdl+0+9pquFb46U7fwg=";

    #[test]
    fn a_listed_type_is_asked_for_before_all_others() {
        let offer = offer(&format!("web1 ecdsa-sha2-nistp256 {KEY}"));
        assert!(
            matches!(offer.key[0], Algorithm::Ecdsa { .. }) && offer.key.len() > 3,
            "{offer:?}"
        );
        assert!(offer.host_key_certificates.is_empty());
    }

    #[test]
    fn certificates_are_asked_for_where_an_authority_is_listed() {
        assert!(
            !offer(&format!("@cert-authority web* ecdsa-sha2-nistp256 {KEY}"))
                .host_key_certificates
                .is_empty()
        );
        assert!(
            offer(&format!("@cert-authority db* ecdsa-sha2-nistp256 {KEY}"))
                .host_key_certificates
                .is_empty()
        );
    }

    #[test]
    fn sha1_is_never_asked_for() {
        let sha1 = Algorithm::Rsa { hash: None };
        let offer = offer(&format!("@cert-authority * ecdsa-sha2-nistp256 {KEY}"));
        assert!(!offer.key.contains(&sha1) && !offer.host_key_certificates.contains(&sha1));
    }
}
