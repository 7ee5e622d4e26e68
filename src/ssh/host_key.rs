use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use russh::keys::{Algorithm, HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Names, client};

use super::{HostKeyError, HostName, KnownHosts, Negotiated};

/// What stands between us and a man in the middle: the callbacks of a client connection.
pub(super) struct HostKeyCheck {
    pub(super) host: HostName,
    pub(super) known: KnownHosts,
    pub(super) negotiated: Arc<OnceLock<Negotiated>>,
    pub(super) fingerprint: Option<String>,
}

/// What can end the making of a connection from inside russh.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    #[error(transparent)]
    Russh(#[from] russh::Error),
}

impl client::Handler for HostKeyCheck {
    type Error = HandshakeError;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, HandshakeError> {
        let key = key.public_key();
        let fingerprint = format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256));
        self.known.verdict(&self.host, &key).judge(&self.host, &fingerprint)?;
        self.fingerprint = Some(fingerprint);
        Ok(true)
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &Names,
        _session: &mut client::Session,
    ) -> Result<(), HandshakeError> {
        // Later calls are for re-keying, and change nothing that is shown.
        self.negotiated.get_or_init(|| Negotiated {
            kex: names.kex.as_ref().to_owned(),
            cipher: names.cipher.as_ref().to_owned(),
            host_key: self.fingerprint.clone().unwrap_or_default(),
        });
        Ok(())
    }
}

/// Looks at the key that a server presents, and goes no further.
pub(super) struct KeyLook(pub(super) Arc<OnceLock<PublicKey>>);

impl client::Handler for KeyLook {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        self.0.get_or_init(|| key.public_key());
        Ok(false)
    }
}

/// The host key types to ask the server for: those that are listed for it, so that it proves itself with a key we know;
/// all we take when none is. `ssh-rsa` with SHA-1 is never among them.
pub(super) fn key_types_to_offer(listed: &[Algorithm]) -> Cow<'static, [Algorithm]> {
    let ours = russh::Preferred::DEFAULT.key;
    let safe = ours.iter().filter(|ours| **ours != Algorithm::Rsa { hash: None });
    let wanted = |ours: &&Algorithm| {
        listed.is_empty() || listed.iter().any(|listed| listed == *ours || (is_rsa(listed) && is_rsa(ours)))
    };
    let offer: Vec<_> = safe.clone().filter(wanted).cloned().collect();
    // A listed type that we can't check at all: any other one will then be called changed.
    if offer.is_empty() { safe.cloned().collect() } else { offer.into() }
}

fn is_rsa(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Rsa { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_type_is_the_only_one_asked_for() {
        assert_eq!(*key_types_to_offer(&[Algorithm::Ed25519]), [Algorithm::Ed25519]);
        assert_eq!(key_types_to_offer(&[Algorithm::Rsa { hash: None }]).len(), 2);
    }

    #[test]
    fn sha1_is_never_asked_for() {
        assert!(!key_types_to_offer(&[]).contains(&Algorithm::Rsa { hash: None }));
    }
}
