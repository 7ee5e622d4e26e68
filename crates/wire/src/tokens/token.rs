use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use sshjobs_core::jobs::{Caller, HostPatterns, Rights, Role};

/// A token: 256 random bits, so a plain hash identifies it.
#[derive(Debug)]
pub struct Token(SecretString);

/// Prefix of every token, by which people and scanners recognize one.
const PREFIX: &str = "sshjobs_";

impl Token {
    /// A new token.
    pub(super) fn random() -> Self {
        let bits: [u8; 32] = rand::random();
        Self(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bits)).into())
    }

    /// Its text, to be shown once.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }

    pub(super) fn hash(&self) -> TokenHash {
        TokenHash::of(self.reveal())
    }
}

/// SHA-256 of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenHash(String);

impl TokenHash {
    pub(super) fn of(text: &str) -> Self {
        Self(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

/// A token in the file. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// The caller's name. Jobs belong to the name, so a later token of the same name has them, too.
    pub name: String,
    /// Role of the caller.
    pub role: Role,
    /// Allowed hosts; an empty list means every host.
    #[serde(default)]
    pub hosts: HostPatterns,
    /// Time of creation.
    pub created_at: u64,
    /// End of validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    pub(super) hash: TokenHash,
}

impl TokenEntry {
    /// Whether it has expired at `now`.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// The caller.
    pub fn caller(&self) -> Caller {
        Caller::new(&self.name)
    }

    /// Rights of the caller.
    pub fn rights(&self) -> Rights {
        Rights {
            hosts: self.hosts.clone(),
            ..Rights::everywhere(self.role)
        }
    }
}
