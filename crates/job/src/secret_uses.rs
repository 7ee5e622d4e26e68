//! The secrets of the configuration that a job uses, by their names.

use std::collections::{BTreeMap, BTreeSet};

use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use sshjobs_output::scrub::{HiddenSecret, SCRUBBER_VERSION};

/// The secrets of the configuration that a job uses, by their names.
#[derive(Clone, Debug, Default)]
pub struct SecretUses {
    /// The secret for each variable that gets one.
    pub env: BTreeMap<String, String>,
    /// The secret that is its stdin.
    pub stdin: Option<String>,
    /// The secrets that its output must not show. Empty until they are read, and for a job that
    /// another process has started.
    pub hidden: Vec<HiddenSecret>,
    /// Fingerprints of the secrets that its output must not show. Empty until they are read.
    pub fingerprints: Vec<SecretFingerprint>,
}

/// A secret that the output of a job must not show, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFingerprint {
    /// Its name.
    pub name: String,
    /// A keyed hash of its value and of the scrubber's version, which shows later whether output would be
    /// scrubbed the same.
    pub hash: String,
}

impl SecretUses {
    /// Whether it uses none.
    pub fn is_empty(&self) -> bool {
        self.env.is_empty() && self.stdin.is_none()
    }

    /// Names of all secrets that it uses.
    pub fn names(&self) -> BTreeSet<&str> {
        self.env.values().chain(&self.stdin).map(String::as_str).collect()
    }

    /// Whether both use the same secrets for the same purposes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.env == other.env && self.stdin == other.stdin
    }
}

impl SecretFingerprint {
    /// A secret with a keyed hash (HMAC-SHA-256) of its value.
    pub fn of(secret: &HiddenSecret, key: &[u8; 32]) -> Self {
        let mut hash = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
        hash.update(secret.name().as_bytes());
        hash.update(&[0]);
        hash.update(&SCRUBBER_VERSION.to_le_bytes());
        hash.update(secret.value().expose_secret().as_bytes());
        let hash = hash.finalize().into_bytes();
        Self {
            name: secret.name().to_owned(),
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}
