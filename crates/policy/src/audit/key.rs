//! The key that signs checkpoints.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use secrecy::{ExposeSecret, SecretString};

use sshjobs_base::bounded_file::read_text;

/// A private key (Ed25519, RFC 8032) in a file that only its owner can read.
pub struct AuditKey(Ed25519KeyPair);

/// The public part of a key. In text, base64 of its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// First word of a key file.
const FORMAT: &str = "sshjobs-audit-key-1";

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it is not a key of an audit log",
    )
}

impl AuditKey {
    /// Reads a key file. Creates a missing one, with a new key.
    ///
    /// # Errors
    /// If it can't be read or created, or is not a key file.
    pub fn open(file: &Path) -> io::Result<Self> {
        match Self::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(file),
            read => read,
        }
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// If it can't be read, or is not a key file.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = SecretString::from(read_text(file)?);
        if fs::metadata(file)?.permissions().mode() & 0o077 != 0 {
            let message = "its permissions let others use it: chmod 600";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Self::parse(&text)
    }

    fn parse(text: &SecretString) -> io::Result<Self> {
        let (format, encoded) = text.expose_secret().trim().split_once(' ').ok_or_else(damaged)?;
        let pkcs8 = BASE64_STANDARD.decode(encoded).map_err(|_| damaged())?;
        if format != FORMAT {
            return Err(damaged());
        }
        Ed25519KeyPair::from_pkcs8(&pkcs8).map(Self).map_err(|_| damaged())
    }

    fn create(file: &Path) -> io::Result<Self> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| io::Error::other("no random numbers"))?;
        let text = SecretString::from(format!(
            "{FORMAT} {}\n",
            BASE64_STANDARD.encode(pkcs8.as_ref())
        ));
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(directory)?;
        // Under its name only once it is whole, and not over the key of a process that was faster.
        let mut new = tempfile::Builder::new().prefix(".audit-key").make_in(directory, |path| {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
        })?;
        new.write_all(text.expose_secret().as_bytes())?;
        new.as_file().sync_all()?;
        match new.persist_noclobber(file) {
            Ok(_) => {
                File::open(directory)?.sync_all()?;
                Self::parse(&text)
            }
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Self::read(file),
            Err(error) => Err(error.error),
        }
    }

    /// The public part.
    pub fn public(&self) -> PublicKey {
        let bytes = self.0.public_key().as_ref();
        PublicKey(bytes.try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Signs a text. Returns the signature in base64.
    pub(super) fn sign(&self, text: &str) -> String {
        BASE64_STANDARD.encode(self.0.sign(text.as_bytes()))
    }
}

impl PublicKey {
    /// Whether a signature in base64 is that of a text.
    pub(super) fn has_signed(&self, text: &str, signature: &str) -> bool {
        let Ok(signature) = BASE64_STANDARD.decode(signature) else { return false };
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(text.as_bytes(), &signature)
            .is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = BASE64_STANDARD.decode(text.trim()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("use the key that `sshjobs audit key` prints")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_created_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/audit.key");

        let created = AuditKey::open(&file).unwrap();
        let opened = AuditKey::open(&file).unwrap();

        assert_eq!(created.public(), opened.public());
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let signature = created.sign("a text");
        assert!(opened.public().has_signed("a text", &signature));
        assert!(!opened.public().has_signed("another text", &signature));
        assert_eq!(opened.public().to_string().parse(), Ok(opened.public()));
    }

    #[test]
    fn a_file_that_is_no_key_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("audit.key");
        fs::write(&file, "ssh-ed25519 AAAA\n").unwrap();

        assert!(AuditKey::open(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "ssh-ed25519 AAAA\n");
    }
}
