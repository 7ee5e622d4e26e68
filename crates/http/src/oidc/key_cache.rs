//! The keys of one issuer.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::discovery::Discovery;
use super::error::TokenRefused;
use super::fetch::fetch;

/// The keys of one issuer, fetched when they are needed, in a task that no request can cancel.
pub(super) struct KeyCache {
    source: Arc<KeySource>,
    state: Arc<watch::Sender<CacheState>>,
    fetches: TaskTracker,
}

/// Where the keys of an issuer come from.
struct KeySource {
    issuer: String,
    jwks_url: Option<String>,
}

#[derive(Default)]
struct CacheState {
    cached: Option<FetchedKeys>,
    /// When the last fetch began.
    last_attempt: Option<Instant>,
    is_fetching: bool,
}

/// Keys as they were fetched.
#[derive(Clone)]
struct FetchedKeys {
    keys: Arc<[IssuerKey]>,
    fetched_at: Instant,
}

/// A public key that verifies signatures.
struct IssuerKey {
    id: Option<String>,
    /// The only algorithm for which it may be used, if the issuer names one.
    algorithm: Option<String>,
    key: DecodingKey,
}

/// Time after which keys are fetched again.
const REFRESH_AFTER: Duration = Duration::from_secs(600);
/// Time for which known keys are used while the issuer does not answer.
const USABLE_FOR: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two fetches.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two fetches while no keys are cached. Short, so that callers are not locked out
/// for long if the issuer does not answer just after a start.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Longest wait of a token for keys: two documents are fetched.
const LONGEST_WAIT: Duration = Duration::from_secs(11);
/// Maximum keys of an issuer.
const MOST_KEYS: usize = 100;

/// A set of keys (RFC 7517, section 5). They are read one by one, because keys of unknown kinds must be
/// ignored.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl KeyCache {
    pub(super) fn new(issuer: String, jwks_url: Option<String>) -> Self {
        Self {
            source: Arc::new(KeySource { issuer, jwks_url }),
            state: Arc::default(),
            fetches: TaskTracker::new(),
        }
    }

    /// The keys with which a token may be signed. Cancel safe.
    ///
    /// # Errors
    /// [`TokenRefused::Key`] if the issuer has no such key, [`TokenRefused::KeysUnavailable`] if it does
    /// not answer.
    pub(super) async fn keys_for(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<DecodingKey>, TokenRefused> {
        let cached = self.usable();
        let found = cached.as_ref().map(|cached| cached.find(id, algorithm)).unwrap_or_default();
        let is_fresh = cached
            .as_ref()
            .is_some_and(|cached| cached.fetched_at.elapsed() < REFRESH_AFTER);
        if !is_fresh || found.is_empty() {
            self.fetch_if_due();
        }
        if !found.is_empty() {
            return Ok(found);
        }

        let mut state = self.state.subscribe();
        // However the wait ends, the state has the answer.
        drop(timeout(LONGEST_WAIT, state.wait_for(|state| !state.is_fetching)).await);
        let cached = self.usable().ok_or(TokenRefused::KeysUnavailable)?;
        let found = cached.find(id, algorithm);
        if found.is_empty() {
            Err(TokenRefused::Key)
        } else {
            Ok(found)
        }
    }

    fn usable(&self) -> Option<FetchedKeys> {
        let cached = self.state.borrow().cached.clone();
        cached.filter(|cached| cached.fetched_at.elapsed() < USABLE_FOR)
    }

    /// Starts to fetch the keys, unless that was tried a moment ago.
    fn fetch_if_due(&self) {
        let now = Instant::now();
        let is_started = self.state.send_if_modified(|state| {
            let interval = if state.cached.is_none() {
                FIRST_RETRY
            } else {
                MIN_FETCH_INTERVAL
            };
            let is_recent = state.last_attempt.is_some_and(|last| now - last < interval);
            if state.is_fetching || is_recent {
                return false;
            }
            state.is_fetching = true;
            state.last_attempt = Some(now);
            true
        });
        if !is_started {
            return;
        }
        let source = Arc::clone(&self.source);
        let state = Arc::clone(&self.state);
        self.fetches.spawn(async move {
            let fetched = source.fetch().await;
            if let Err(why) = &fetched {
                tracing::warn!(
                    issuer = source.issuer,
                    "the issuer's keys can't be fetched: {why}"
                );
            }
            state.send_modify(|state| {
                state.is_fetching = false;
                if let Ok(keys) = fetched {
                    state.cached = Some(FetchedKeys {
                        keys,
                        fetched_at: now,
                    });
                }
            });
        });
    }
}

impl KeySource {
    async fn fetch(&self) -> Result<Arc<[IssuerKey]>, String> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => Discovery::fetch(&self.issuer).await?.jwks_uri,
        };
        let set: KeySet = fetch(&url).await?;
        let keys: Arc<[IssuerKey]> =
            set.keys.into_iter().filter_map(IssuerKey::of).take(MOST_KEYS).collect();
        if keys.is_empty() {
            return Err("it lists no key for signatures".to_owned());
        }
        Ok(keys)
    }
}

impl FetchedKeys {
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        self.keys
            .iter()
            .filter(|key| key.fits(id, algorithm))
            .map(|key| key.key.clone())
            .collect()
    }
}

impl IssuerKey {
    fn fits(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        let has_id = id.is_none() || self.id.as_deref() == id;
        let name = format!("{algorithm:?}");
        let has_algorithm = self.algorithm.as_ref().is_none_or(|known| *known == name);
        has_id && has_algorithm && self.key.family() == algorithm.family()
    }

    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let is_for_signatures = match &jwk.common.public_key_use {
            None | Some(PublicKeyUse::Signature) => true,
            Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_)) => false,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        // A shared secret in a public list would be a mistake that lets everybody sign.
        let is_public = key.family() != jsonwebtoken::AlgorithmFamily::Hmac;
        (is_for_signatures && is_public).then(|| Self {
            id: jwk.common.key_id.clone(),
            algorithm: jwk.common.key_algorithm.map(|algorithm| algorithm.to_string()),
            key,
        })
    }
}
