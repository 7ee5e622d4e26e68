use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, PublicKey};

/// A key or certificate that is offered to the server (RFC 4252 §7).
#[derive(Clone, PartialEq)]
pub(super) enum Offer {
    /// Without its comment, which does not affect the key.
    Key(PublicKey),
    Certificate(Box<Certificate>),
}

impl Offer {
    pub(super) fn key(key: &PublicKey) -> Self {
        Self::Key(key.key_data().clone().into())
    }

    pub(super) fn certificate(certificate: Certificate) -> Self {
        Self::Certificate(Box::new(certificate))
    }

    pub(super) fn public(&self) -> &KeyData {
        match self {
            Self::Key(key) => key.key_data(),
            Self::Certificate(certificate) => certificate.public_key(),
        }
    }
}
