//! Logins of the page.
//!
//! A cookie holds a random key. The token is stored encrypted with it, under the key's hash, and shared like all state:
//! a login is valid at each replica and after a restart. The store alone reveals no token, and a cookie alone is none.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aes_gcm::aead::{Aead, KeyInit, Nonce};
use aes_gcm::{Aes256Gcm, Key};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretBox, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use sshjobs_base::lock::lock;
use sshjobs_core::jobs::{SharedValue, SharedValueError};

/// The logins of a server and of all that share its state.
pub(crate) struct PageLogins {
    shared: SharedValue<LoginTable>,
    copy: Mutex<Copy>,
}

/// Logins by the hashes of their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LoginTable(BTreeMap<String, PageLogin>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PageLogin {
    /// The token, encrypted with the login's key, in base64.
    sealed: String,
    /// Its end, in seconds since the Unix epoch.
    until: u64,
}

/// The table as it was last read.
#[derive(Default)]
struct Copy {
    table: LoginTable,
    read_at: Option<Instant>,
}

/// The key of a login, which only its cookie has.
struct LoginKey(SecretBox<[u8; KEY_BYTES]>);

const KEY_BYTES: usize = 32;
/// Longest time for which a login is valid.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// A logout at another server ends a login here after this time.
const FRESH: Duration = Duration::from_secs(1);
/// Maximum logins. Beyond it, the oldest end.
const MOST: usize = 1000;
/// Maximum bytes of all logins: NATS stores no text above a mebibyte. Beyond it, the oldest end.
const MOST_BYTES: usize = 512 << 10;

impl PageLogins {
    pub(crate) fn new(shared: SharedValue<LoginTable>) -> Self {
        Self {
            shared,
            copy: Mutex::default(),
        }
    }

    /// Begins a login with a token. Returns the value of its cookie.
    ///
    /// # Errors
    /// If it can't be stored.
    pub(crate) async fn begin(
        &self,
        token: &SecretString,
    ) -> Result<SecretString, SharedValueError> {
        let key = LoginKey::random();
        let login = PageLogin {
            sealed: key.seal(token),
            until: now().saturating_add(LIFETIME.as_secs()),
        };
        let name = key.hash();
        self.change(move |table| table.add(name.clone(), login.clone(), now())).await?;
        Ok(key.to_cookie())
    }

    /// Whether a cookie was that of a login when the logins were last read.
    pub(crate) fn knows(&self, cookie: &SecretString) -> bool {
        LoginKey::from_cookie(cookie)
            .is_some_and(|key| lock(&self.copy).table.0.contains_key(&key.hash()))
    }

    /// The token of a login. `None` if there is no such login, or if it has ended.
    ///
    /// # Errors
    /// If the logins can't be read.
    pub(crate) async fn token_of(
        &self,
        cookie: &SecretString,
    ) -> Result<Option<SecretString>, SharedValueError> {
        let Some(key) = LoginKey::from_cookie(cookie) else { return Ok(None) };
        let name = key.hash();
        let found = self.find(&name).await?;
        let valid = found.filter(|login| now() < login.until);
        Ok(valid.and_then(|login| key.open(&login.sealed)))
    }

    /// Ends a login.
    ///
    /// # Errors
    /// If that can't be stored.
    pub(crate) async fn end(&self, cookie: &SecretString) -> Result<(), SharedValueError> {
        let Some(key) = LoginKey::from_cookie(cookie) else { return Ok(()) };
        let name = key.hash();
        self.change(move |table| drop(table.0.remove(&name))).await
    }

    async fn find(&self, name: &str) -> Result<Option<PageLogin>, SharedValueError> {
        {
            let copy = lock(&self.copy);
            let is_fresh = copy.read_at.is_some_and(|at| at.elapsed() < FRESH);
            let found = copy.table.0.get(name);
            // One that began a moment ago, at another server, is not in the copy.
            if is_fresh && found.is_some() {
                return Ok(found.cloned());
            }
        }
        let read_at = Some(Instant::now());
        let table = self.shared.read().await?;
        let found = table.0.get(name).cloned();
        *lock(&self.copy) = Copy { table, read_at };
        Ok(found)
    }

    async fn change(
        &self,
        change: impl Fn(&mut LoginTable) + Send + 'static,
    ) -> Result<(), SharedValueError> {
        self.shared.change(change).await?;
        // The next request reads the changed table.
        *lock(&self.copy) = Copy::default();
        Ok(())
    }
}

impl LoginTable {
    fn add(&mut self, name: String, login: PageLogin, now: u64) {
        self.0.retain(|_, login| now < login.until);
        self.0.insert(name, login);
        let bytes_of = |(name, login): (&String, &PageLogin)| name.len() + login.sealed.len();
        while self.0.len() > MOST || self.0.iter().map(bytes_of).sum::<usize>() > MOST_BYTES {
            let oldest = self.0.iter().min_by_key(|(_, login)| login.until);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return };
            self.0.remove(&oldest);
        }
    }
}

impl LoginKey {
    fn random() -> Self {
        Self(SecretBox::new(Box::new(rand::random())))
    }

    fn from_cookie(value: &SecretString) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(value.expose_secret()).ok()?;
        let key = <[u8; KEY_BYTES]>::try_from(bytes).ok()?;
        Some(Self(SecretBox::new(Box::new(key))))
    }

    fn to_cookie(&self) -> SecretString {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.expose_secret()).into()
    }

    fn hash(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.0.expose_secret()))
    }

    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new(&Key::<Aes256Gcm>::from(*self.0.expose_secret()))
    }

    fn seal(&self, token: &SecretString) -> String {
        // A key encrypts one text, so that its nonce may be the same for all.
        let sealed = self.cipher().encrypt(
            &Nonce::<Aes256Gcm>::default(),
            token.expose_secret().as_bytes(),
        );
        BASE64_STANDARD.encode(sealed.expect("a token is far shorter than AES-GCM's limit"))
    }

    fn open(&self, sealed: &str) -> Option<SecretString> {
        let sealed = BASE64_STANDARD.decode(sealed).ok()?;
        let token =
            self.cipher().decrypt(&Nonce::<Aes256Gcm>::default(), sealed.as_slice()).ok()?;
        Some(String::from_utf8(token).ok()?.into())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins() -> PageLogins {
        PageLogins::new(SharedValue::new("logins", None))
    }

    async fn token_of(logins: &PageLogins, cookie: &SecretString) -> Option<String> {
        let found = logins.token_of(cookie).await.unwrap();
        found.map(|token| token.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn a_cookie_stands_for_its_token_until_the_login_ends() {
        let logins = logins();
        let [one, other] = [
            logins.begin(&"one".into()).await.unwrap(),
            logins.begin(&"other".into()).await.unwrap(),
        ];

        assert_eq!(token_of(&logins, &one).await.as_deref(), Some("one"));
        logins.end(&one).await.unwrap();
        assert_eq!(token_of(&logins, &one).await, None);
        assert_eq!(token_of(&logins, &other).await.as_deref(), Some("other"));
        for unknown in ["", "one", "AAAA", &"A".repeat(43)] {
            assert_eq!(token_of(&logins, &unknown.into()).await, None, "{unknown}");
        }
    }

    #[tokio::test]
    async fn what_is_stored_reveals_neither_tokens_nor_cookies() {
        let logins = logins();
        let cookie = logins.begin(&"sshjobs_token".into()).await.unwrap();

        let stored = serde_json::to_string(&logins.shared.read().await.unwrap()).unwrap();

        assert!(!stored.contains(cookie.expose_secret()) && !stored.contains("sshjobs_token"));
    }

    #[test]
    fn old_logins_end_and_the_table_stays_small() {
        let login = |until| PageLogin {
            sealed: "x".repeat(5000),
            until,
        };
        let mut table = LoginTable::default();
        table.add("expired".to_owned(), login(10), 0);
        for number in 0..200 {
            table.add(number.to_string(), login(1000 + number), 20);
        }

        assert!(!table.0.contains_key("expired") && !table.0.contains_key("0"));
        assert!(table.0.contains_key("199"));
        assert!(serde_json::to_string(&table).unwrap().len() < 1 << 20);
    }
}
