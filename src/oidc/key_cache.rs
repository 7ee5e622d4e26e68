//! The keys of one issuer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::error::TokenRefused;
use super::fetch::fetch;
use crate::lock::lock;

/// The keys of one issuer, fetched when they are needed.
pub(super) struct KeyCache {
    issuer: String,
    jwks_url: Option<String>,
    known: Mutex<Option<Fetched>>,
    /// Time of the last attempt to fetch them. Locked while they are fetched, by one caller at a time.
    last_attempt: AsyncMutex<Option<Instant>>,
}

/// Keys as they were fetched.
#[derive(Clone)]
struct Fetched {
    keys: Arc<[SigningKey]>,
    at: Instant,
}

/// A public key for signatures.
struct SigningKey {
    id: Option<String>,
    /// The only algorithm for which it may be used, if the issuer names one.
    algorithm: Option<String>,
    key: DecodingKey,
}

/// Time after which keys are fetched again.
const FRESH: Duration = Duration::from_secs(600);
/// Time for which known keys are used while the issuer does not answer.
const USABLE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two attempts to fetch them.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(60);
/// Maximum keys of an issuer.
const MOST_KEYS: usize = 100;

/// An issuer's discovery document (OpenID Connect Discovery 1.0, section 3).
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// A set of keys (RFC 7517, section 5). Keys of unknown kinds are ignored, as it says.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl KeyCache {
    pub(super) fn new(issuer: String, jwks_url: Option<String>) -> Self {
        Self {
            issuer,
            jwks_url,
            known: Mutex::default(),
            last_attempt: AsyncMutex::default(),
        }
    }

    /// The keys with which a token may be signed.
    ///
    /// # Errors
    /// [`TokenRefused::Key`] if the issuer has no such key, [`TokenRefused::KeysUnavailable`] if it does
    /// not answer.
    pub(super) async fn keys_for(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<DecodingKey>, TokenRefused> {
        let now = Instant::now();
        let known = self.usable(now);
        let found = known.as_ref().map(|known| known.find(id, algorithm)).unwrap_or_default();
        let is_fresh = known.as_ref().is_some_and(|known| now - known.at < FRESH);
        if is_fresh && !found.is_empty() {
            return Ok(found);
        }
        // With a known key, a token does not wait for another one that fetches.
        if !found.is_empty() {
            if let Ok(mut last_attempt) = self.last_attempt.try_lock() {
                self.fetch_again(&mut last_attempt).await;
            }
        } else {
            let mut last_attempt = self.last_attempt.lock().await;
            self.fetch_again(&mut last_attempt).await;
        }
        let known = self.usable(Instant::now()).ok_or(TokenRefused::KeysUnavailable)?;
        let found = known.find(id, algorithm);
        if found.is_empty() {
            Err(TokenRefused::Key)
        } else {
            Ok(found)
        }
    }

    fn usable(&self, now: Instant) -> Option<Fetched> {
        lock(&self.known).clone().filter(|known| now - known.at < USABLE)
    }

    /// Fetches the keys unless that was tried a moment ago.
    async fn fetch_again(&self, last_attempt: &mut Option<Instant>) {
        let now = Instant::now();
        if last_attempt.is_some_and(|last| now - last < BETWEEN_ATTEMPTS) {
            return;
        }
        *last_attempt = Some(now);
        match self.fetch().await {
            Ok(keys) => {
                *lock(&self.known) = Some(Fetched { keys, at: now });
            }
            Err(why) => {
                tracing::warn!(
                    issuer = self.issuer,
                    "the issuer's keys can't be fetched: {why}"
                );
            }
        }
    }

    async fn fetch(&self) -> Result<Arc<[SigningKey]>, String> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => {
                let base = self.issuer.trim_end_matches('/');
                let url = format!("{base}/.well-known/openid-configuration");
                let discovery: Discovery = fetch(&url).await?;
                // OpenID Connect Discovery, section 4.3.
                if discovery.issuer != self.issuer {
                    return Err("its discovery document is of another issuer".to_owned());
                }
                if self.issuer.starts_with("https://")
                    && !discovery.jwks_uri.starts_with("https://")
                {
                    return Err("its keys are not at an https:// URL".to_owned());
                }
                discovery.jwks_uri
            }
        };
        let set: KeySet = fetch(&url).await?;
        let keys = set.keys.into_iter().take(MOST_KEYS).filter_map(SigningKey::of);
        Ok(keys.collect())
    }
}

impl Fetched {
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let fits = |key: &&SigningKey| {
            let has_id = id.is_none() || key.id.as_deref() == id;
            let name = format!("{algorithm:?}");
            let has_algorithm = key.algorithm.as_ref().is_none_or(|known| *known == name);
            has_id && has_algorithm && key.key.family() == algorithm.family()
        };
        self.keys.iter().filter(fits).map(|key| key.key.clone()).collect()
    }
}

impl SigningKey {
    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        // A shared secret in a public list would be a mistake that lets everybody sign.
        let is_for_signatures = match &jwk.common.public_key_use {
            None | Some(PublicKeyUse::Signature) => true,
            Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_)) => false,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let is_public = key.family() != jsonwebtoken::AlgorithmFamily::Hmac;
        (is_for_signatures && is_public).then(|| Self {
            id: jwk.common.key_id.clone(),
            algorithm: jwk.common.key_algorithm.map(|algorithm| algorithm.to_string()),
            key,
        })
    }
}
