//! Private keys and certificates in files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{self, Certificate, PrivateKey, PublicKey};
use secrecy::{ExposeSecret, SecretString};

use crate::config::others_can_read;
use sshjobs_base::bounded_file::read_text;

/// A private key in a file.
pub(super) enum KeyFile {
    /// Ready for use.
    Open(Arc<PrivateKey>),
    /// Encrypted; its public half is known.
    Locked {
        public: PublicKey,
        text: SecretString,
    },
}

/// Why a file has no usable key.
pub(super) enum NoKey {
    Missing,
    Unusable(String),
}

fn unusable(error: impl std::fmt::Display) -> NoKey {
    NoKey::Unusable(error.to_string())
}

impl KeyFile {
    /// Reads a file. As with ssh, one that others can read is not used.
    pub(super) fn load(file: &Path) -> Result<Self, NoKey> {
        let text = match read_text(file) {
            Ok(text) => SecretString::from(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoKey::Missing),
            Err(error) => return Err(unusable(error)),
        };
        // IdentityFile may name a public key whose private half is in an agent (ssh_config(5)).
        // Before the check below, because others may read a public key.
        if PublicKey::from_openssh(text.expose_secret()).is_ok() {
            return Err(NoKey::Unusable(
                "a public key, whose private half no agent holds".to_owned(),
            ));
        }
        if others_can_read(file).map_err(unusable)? {
            return Err(NoKey::Unusable(
                "others can read it; chmod 600 it".to_owned(),
            ));
        }
        match keys::decode_secret_key(text.expose_secret(), None) {
            Ok(key) => Ok(Self::Open(Arc::new(key))),
            Err(error) => match public_half(file, &text) {
                Some(public) if is_encrypted(&error, &text) => Ok(Self::Locked { public, text }),
                None if is_encrypted(&error, &text) => {
                    let why = format!(
                        "encrypted; put its public half beside it, in {}",
                        beside(file, ".pub").display()
                    );
                    Err(NoKey::Unusable(why))
                }
                _ => Err(unusable(error)),
            },
        }
    }

    pub(super) fn public(&self) -> &PublicKey {
        match self {
            Self::Open(key) => key.public_key(),
            Self::Locked { public, .. } => public,
        }
    }
}

fn is_encrypted(error: &keys::Error, text: &SecretString) -> bool {
    matches!(error, keys::Error::KeyIsEncrypted) || text.expose_secret().contains("ENCRYPTED")
}

/// Decrypts a private key. Takes seconds if its key derivation is slow.
pub(super) fn unlock(text: &SecretString, passphrase: &SecretString) -> Option<PrivateKey> {
    keys::decode_secret_key(text.expose_secret(), Some(passphrase.expose_secret())).ok()
}

/// The public half: part of the file for OpenSSH keys, in a file beside it for others.
fn public_half(file: &Path, text: &SecretString) -> Option<PublicKey> {
    let shown = PrivateKey::from_openssh(text.expose_secret())
        .ok()
        .map(|key| key.public_key().clone());
    shown.or_else(|| keys::load_public_key(beside(file, ".pub")).ok())
}

/// The public key of an identity file, even if the private key is elsewhere, for example in an
/// agent.
pub(super) fn public_key(file: &Path) -> Option<PublicKey> {
    keys::load_public_key(beside(file, ".pub"))
        .ok()
        .or_else(|| Some(KeyFile::load(file).ok()?.public().clone()))
        .or_else(|| keys::load_public_key(file).ok())
        .or_else(|| {
            Some(PublicKey::from(
                Certificate::read_file(file).ok()?.public_key().clone(),
            ))
        })
}

/// The user certificates in `files` and beside the keys.
pub(super) fn certificates(files: &[PathBuf], keys: &[PathBuf]) -> Vec<Certificate> {
    let beside = keys.iter().map(|key| beside(key, "-cert.pub"));
    let mut found: Vec<Certificate> = Vec::new();
    for file in files.iter().cloned().chain(beside) {
        match Certificate::read_file(&file) {
            Ok(certificate) if !found.contains(&certificate) => found.push(certificate),
            Ok(_) => {}
            Err(error) if file.exists() => {
                tracing::warn!(file = %file.display(), %error, "not a certificate")
            }
            // Most keys have no certificate beside them.
            Err(_) => {}
        }
    }
    found
}

/// The key file among `files` that belongs to a certificate.
pub(super) fn for_certificate(files: &[PathBuf], key: &KeyData) -> Option<PathBuf> {
    files
        .iter()
        .find(|file| public_key(file).is_some_and(|public| public.key_data() == key))
        .cloned()
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(ending);
    name.into()
}
