use russh::keys::ssh_key::public::KeyData;
use russh::keys::{HashAlg, PublicKey, PublicKeyOrCertificate};

/// russh's type can't be cloned.
pub(crate) fn copy(presented: &PublicKeyOrCertificate) -> PublicKeyOrCertificate {
    match presented {
        PublicKeyOrCertificate::PublicKey { key, hash_alg } => PublicKeyOrCertificate::PublicKey {
            key: key.clone(),
            hash_alg: *hash_alg,
        },
        PublicKeyOrCertificate::Certificate(certificate) => {
            PublicKeyOrCertificate::Certificate(certificate.clone())
        }
    }
}

/// Type and SHA-256 fingerprint.
pub(crate) fn fingerprint(key: &PublicKey) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

/// The length of an RSA key that is too short, in bits.
pub(crate) fn short_rsa(key: &KeyData, shortest: u32) -> Option<u32> {
    key.rsa().map(|rsa| rsa.key_size()).filter(|&bits| bits < shortest)
}
