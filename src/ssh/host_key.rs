use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::agent::AgentSessionBinding;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Names, Preferred, client};

use super::certificate::CertificateRules;
use super::{HostConfig, HostKeyError, HostName, KnownHosts, Negotiated, PresentedKey, TrustError, Verdict};

/// What stands between us and a man in the middle: the callbacks of a client connection.
pub(super) struct HostKeyCheck {
    pub(super) host: HostConfig,
    /// What known_hosts says of this host.
    pub(super) known: KnownHosts,
    pub(super) negotiated: Arc<OnceLock<Negotiated>>,
    /// The signature algorithm that both sides agreed on for the host key.
    pub(super) agreed: Arc<OnceLock<Algorithm>>,
    pub(super) fingerprint: Option<String>,
}

/// What can end the making of a connection from inside russh.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    #[error(transparent)]
    Russh(#[from] russh::Error),
    #[error("the server does not answer")]
    Silent,
}

impl HostKeyCheck {
    /// Only a key that known_hosts vouches for passes; under `accept-new` also one of a host that it does not know at all, which
    /// is then written down.
    async fn judge(&self, presented: &PublicKeyOrCertificate) -> Result<String, HostKeyError> {
        let name = HostName::of(&self.host);
        let key = presented.public_key();
        let fingerprint = fingerprint(&key);
        if let Some(bits) = short_rsa(key.key_data(), self.host.shortest_rsa) {
            return Err(HostKeyError::TooShort { host: name.as_str().to_owned(), bits });
        }
        let is_certificate = matches!(presented, PublicKeyOrCertificate::Certificate(_));
        let verdict = verdict(&self.host, &self.known, presented);
        if verdict == Verdict::Unknown && self.host.accept_new {
            let presented = Arc::new(PresentedKey::new(&self.host, copy(presented)).await?);
            let file = presented.trust().await.map_err(|error| match error {
                TrustError::HostKey(error) => error,
                error @ (TrustError::NoFile(_) | TrustError::Unwritable { .. }) => {
                    HostKeyError::NotWritten(Box::new(error))
                }
            })?;
            tracing::warn!(host = self.host.name, fingerprint, file = %file.display(), "accepted a new host key");
        } else {
            verdict.judge(&name, &fingerprint)?;
        }
        Ok(fingerprint + if is_certificate { " (certified)" } else { "" })
    }
}

impl client::Handler for HostKeyCheck {
    type Error = HandshakeError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, HandshakeError> {
        self.fingerprint = Some(self.judge(presented).await?);
        Ok(true)
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &Names,
        session: &mut client::Session,
    ) -> Result<(), HandshakeError> {
        // Later calls are for re-keying, and change nothing that is shown.
        self.agreed.get_or_init(|| names.key.clone());
        self.negotiated.get_or_init(|| Negotiated {
            kex: names.kex.as_ref().to_owned(),
            cipher: names.cipher.as_ref().to_owned(),
            strict_kex: names.strict_kex(),
            server: printable(session.remote_sshid()),
            host_key: self.fingerprint.clone().unwrap_or_default(),
        });
        Ok(())
    }
}

/// Compares what a server proved itself with, its key and its signature as they came (RFC 4253 §8), with the algorithm that was
/// agreed on. russh takes any signature that is valid, so a server, or somebody in the middle who can forge weak ones, could
/// do with SHA-1 what was to be SHA-2.
pub(super) fn check_agreed(agreed: &Algorithm, proof: &AgentSessionBinding) -> Result<(), HostKeyError> {
    let (key, signature) = (first_word(proof.host_key()), first_word(proof.signature()));
    let is_certificate = key.ends_with(CERTIFICATE_ENDING);
    let expected_key = match (agreed, is_certificate) {
        (Algorithm::Rsa { .. }, false) => "ssh-rsa".to_owned(),
        (Algorithm::Rsa { .. }, true) => format!("ssh-rsa{CERTIFICATE_ENDING}"),
        (other, false) => other.to_string(),
        (other, true) => other.to_certificate_type(),
    };
    let wrong = [(&key, expected_key), (&signature, agreed.to_string())];
    match wrong.into_iter().find(|(came, expected)| *came != expected) {
        None => Ok(()),
        Some((came, expected)) => Err(HostKeyError::NotAgreed { came: printable(came.as_bytes()), expected }),
    }
}

/// How the names of certificate types end (OpenSSH's PROTOCOL.certkeys).
const CERTIFICATE_ENDING: &str = "-cert-v01@openssh.com";

/// The string that an encoded key or signature begins with (RFC 4253 §6.6): its algorithm.
fn first_word(blob: &[u8]) -> String {
    let word = blob.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.get(..length)
    });
    String::from_utf8_lossy(word.unwrap_or_default()).into_owned()
}

/// Looks at the key that a server presents, and goes no further.
pub(super) struct KeyLook(pub(super) Arc<OnceLock<PublicKeyOrCertificate>>);

impl client::Handler for KeyLook {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        self.0.get_or_init(|| copy(key));
        Ok(false)
    }
}

/// How a server names itself (RFC 4253 §4.2), without what would steer a terminal.
fn printable(id: &[u8]) -> String {
    String::from_utf8_lossy(id).chars().filter(|c| !c.is_control()).take(255).collect()
}

/// russh's type can't be cloned.
pub(super) fn copy(presented: &PublicKeyOrCertificate) -> PublicKeyOrCertificate {
    match presented {
        PublicKeyOrCertificate::PublicKey { key, hash_alg } => {
            PublicKeyOrCertificate::PublicKey { key: key.clone(), hash_alg: *hash_alg }
        }
        PublicKeyOrCertificate::Certificate(certificate) => {
            PublicKeyOrCertificate::Certificate(certificate.clone())
        }
    }
}

/// What known_hosts says of what a host presents.
pub(super) fn verdict(host: &HostConfig, known: &KnownHosts, presented: &PublicKeyOrCertificate) -> Verdict {
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

/// Type and SHA-256 fingerprint.
pub(super) fn fingerprint(key: &PublicKey) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

/// The length of an RSA key that is too short, in bits.
pub(super) fn short_rsa(key: &KeyData, shortest: u32) -> Option<u32> {
    key.rsa().map(|rsa| rsa.key_size()).filter(|&bits| bits < shortest)
}

/// The host keys to ask the server for: first of the types that are listed for it, so that it proves itself with a key we know.
/// With an authority listed, certificates before all. None that `allowed` (HostKeyAlgorithms) leaves out, and never `ssh-rsa` with
/// SHA-1.
pub(super) fn host_keys_to_offer(known: &KnownHosts, host: &HostName, allowed: Option<&str>) -> Preferred {
    let may = |name: String| allowed.is_none_or(|allowed| allowed.split(',').any(|allowed| allowed == name));
    let mut plain = safe_key_types();
    plain.retain(|algorithm| may(algorithm.to_string()));
    let listed = known.key_types(host);
    let is_listed = |ours: &Algorithm| listed.iter().any(|key| key == ours || (is_rsa(key) && is_rsa(ours)));
    plain.sort_by_key(|ours| !is_listed(ours));
    let mut certified = if known.has_authority(host) { safe_key_types() } else { Vec::new() };
    certified.retain(|algorithm| may(algorithm.to_certificate_type()));
    Preferred { key: plain.into(), host_key_certificates: certified.into(), ..Preferred::DEFAULT }
}

fn safe_key_types() -> Vec<Algorithm> {
    let ours: &Cow<'_, [Algorithm]> = &Preferred::DEFAULT.key;
    ours.iter().filter(|algorithm| **algorithm != Algorithm::Rsa { hash: None }).cloned().collect()
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
        assert!(matches!(offer.key[0], Algorithm::Ecdsa { .. }) && offer.key.len() > 3, "{offer:?}");
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
            offer(&format!("@cert-authority db* ecdsa-sha2-nistp256 {KEY}")).host_key_certificates.is_empty()
        );
    }

    #[test]
    fn sha1_is_never_asked_for() {
        let sha1 = Algorithm::Rsa { hash: None };
        let offer = offer(&format!("@cert-authority * ecdsa-sha2-nistp256 {KEY}"));
        assert!(!offer.key.contains(&sha1) && !offer.host_key_certificates.contains(&sha1));
    }
}
