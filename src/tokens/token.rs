use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::jobs::{Caller, HostPatterns, Rights, Role};

/// What a caller shows: 256 random bits that nobody can guess, so that a plain hash recognizes it.
#[derive(Debug)]
pub struct Token(SecretString);

/// How every token begins, so that people and scanners recognize one.
const PREFIX: &str = "sshjobs_";

impl Token {
    /// A new one.
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

/// What recognizes a token: its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenHash(String);

impl TokenHash {
    pub(super) fn of(text: &str) -> Self {
        Self(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }

    /// Whether both are the same, in a time that tells nothing about where they differ.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

/// A token as the file has it. Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// The caller's name: jobs belong to it, also to a later token with the same name.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
    /// On which hosts; an empty list is every host.
    #[serde(default)]
    pub hosts: HostPatterns,
    /// When the token was made.
    pub created_at: u64,
    /// When it is no longer valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    pub(super) hash: TokenHash,
}

impl TokenEntry {
    /// Whether it is no longer valid at `now`.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// The caller.
    pub fn caller(&self) -> Caller {
        Caller::new(&self.name)
    }

    /// What the caller may do.
    pub fn rights(&self) -> Rights {
        Rights { role: self.role, hosts: self.hosts.clone() }
    }
}
