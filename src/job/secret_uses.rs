//! The secrets of the configuration that a job uses, by their names.

use std::collections::{BTreeMap, BTreeSet};

use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::scrub::HiddenSecret;

/// The secrets of the configuration that a job uses, by their names.
#[derive(Clone, Debug, Default)]
pub struct SecretUses {
    /// The secret for each variable that gets one.
    pub env: BTreeMap<String, String>,
    /// The secret that is its stdin.
    pub stdin: Option<String>,
    /// The secrets that its output must not show. Empty until they were read, and for a job that
    /// another process has started.
    pub hidden: Vec<HiddenSecret>,
    /// Names of the secrets that its output must not show.
    pub hidden_names: BTreeSet<String>,
}

/// A secret that the output of a job must not show, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretMark {
    /// Its name.
    pub name: String,
    /// A keyed hash of its value, which shows later whether the value is still the same.
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

    /// The secrets that its output must not show, with hashes of their values.
    pub fn marks(&self, key: &[u8; 32]) -> Vec<SecretMark> {
        self.hidden.iter().map(|secret| SecretMark::of(secret, key)).collect()
    }
}

impl SecretMark {
    /// A secret with a keyed hash (HMAC-SHA-256) of its value.
    pub fn of(secret: &HiddenSecret, key: &[u8; 32]) -> Self {
        let mut hash = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
        hash.update(secret.name().as_bytes());
        hash.update(&[0]);
        hash.update(secret.value().expose_secret().as_bytes());
        let hash = hash.finalize().into_bytes();
        Self {
            name: secret.name().to_owned(),
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}
