//! Signatures by the agent and by key files, and the time they take.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode;
use russh::keys::{HashAlg, PrivateKey};
use russh::{AgentAuthError, Signer};
use secrecy::SecretString;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::key_file::{KeyFile, unlock};
use super::prompter::REFUSED;
use super::{LoginSecrets, Question};
use crate::HostConfig;
use sshjobs_base::lock::{LockGuard, lock};

/// Time limit for the agent to sign. It may wait for a touch of a security key, or ask a person.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no signature. The connection is still usable.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSignature {
    #[error(transparent)]
    Send(#[from] russh::SendError),
    #[error("the agent: {0}")]
    Agent(#[from] AgentAuthError),
    #[error("the agent did not sign within {0:?}")]
    AgentSilent(Duration),
    #[error("{0}")]
    Locked(String),
    #[error("the server does not answer")]
    ServerSilent,
    #[error("the key can't sign")]
    Key,
}

/// Measures signing time, to distinguish a silent server from a person or agent that has not
/// answered yet.
#[derive(Clone, Default)]
pub(super) struct SigningTime(Arc<Mutex<Signing>>);

#[derive(Default)]
struct Signing {
    /// Time spent signing so far.
    spent: Duration,
    /// Start of the current signature, if one is in progress.
    since: Option<Instant>,
}

/// Shortest wait for the server before the signing time is examined again.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

impl SigningTime {
    /// Waits for the server, and subtracts the time from `patience`, except the time spent signing.
    pub(super) async fn within<T>(
        &self,
        patience: &mut Duration,
        call: impl Future<Output = Result<T, NoSignature>>,
    ) -> Result<T, NoSignature> {
        let mut call = pin!(call);
        let began = Instant::now();
        let whole = *patience;
        loop {
            // The time of a signature does not count, so this limit may expire early.
            // Then the wait continues.
            let result = timeout((*patience).max(SHORTEST_WAIT), &mut call).await;
            *patience = whole.saturating_sub(began.elapsed().saturating_sub(self.spent()));
            match result {
                Ok(result) => return result,
                Err(_) if patience.is_zero() => return Err(NoSignature::ServerSilent),
                Err(_) => {}
            }
        }
    }

    fn spent(&self) -> Duration {
        let signing = self.signing();
        signing.spent + signing.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn signing(&self) -> LockGuard<'_, Signing> {
        lock(&self.0)
    }

    async fn during<T>(&self, signing: impl Future<Output = T>) -> T {
        self.signing().since = Some(Instant::now());
        let result = signing.await;
        let spent = self.spent();
        *self.signing() = Signing { spent, since: None };
        result
    }
}

/// The connection to an agent, until a signature takes too long. A later reply would be taken for
/// the signature of the next key, so the connection is given up.
pub(super) struct AgentConnection(Option<AgentClient<UnixStream>>);

impl AgentConnection {
    pub(super) fn new(client: AgentClient<UnixStream>) -> Self {
        Self(Some(client))
    }
}

/// An agent with a time limit for its signatures.
pub(super) struct Agent<'a> {
    agent: &'a mut AgentConnection,
    busy: SigningTime,
}

impl<'a> Agent<'a> {
    pub(super) fn signer(agent: &'a mut AgentConnection) -> (Self, SigningTime) {
        let busy = SigningTime::default();
        (
            Self {
                agent,
                busy: busy.clone(),
            },
            busy,
        )
    }
}

impl Signer for Agent<'_> {
    type Error = NoSignature;

    async fn auth_sign(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        let silent = NoSignature::AgentSilent(SIGN_TIMEOUT);
        // Put back only after a reply, so that a cancelled call gives the connection up, too.
        let Some(mut client) = self.agent.0.take() else { return Err(silent) };
        let signing = timeout(SIGN_TIMEOUT, client.auth_sign(key, hash, data));
        let Ok(signed) = self.busy.during(signing).await else { return Err(silent) };
        self.agent.0 = Some(client);
        Ok(signed?)
    }
}

/// A key file. It is decrypted only once the server has said that it would accept the key.
pub(super) struct File<'a> {
    pub(super) path: PathBuf,
    pub(super) key: KeyFile,
    pub(super) host: &'a HostConfig,
    pub(super) secrets: &'a LoginSecrets,
    pub(super) busy: SigningTime,
}

impl Signer for File<'_> {
    type Error = NoSignature;

    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        hash: Option<HashAlg>,
        mut data: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        // Only this step is measured: it may ask a person or derive a key.
        let key = self.busy.during(self.open()).await?;
        let signature = match key.key_data().rsa() {
            Some(rsa) => (rsa, hash).try_sign(&data),
            None => key.try_sign(&data),
        };
        // The signed data and then the signature as a string (RFC 4252 §7).
        let encoded =
            signature.ok().and_then(|signature| signature.encode_prefixed(&mut data).ok());
        encoded.map(|()| data).ok_or(NoSignature::Key)
    }
}

fn locked(why: impl std::fmt::Display) -> NoSignature {
    NoSignature::Locked(why.to_string())
}

impl File<'_> {
    async fn open(&self) -> Result<Arc<PrivateKey>, NoSignature> {
        let text = match &self.key {
            KeyFile::Open(key) => return Ok(Arc::clone(key)),
            KeyFile::Locked { text, .. } => text,
        };
        // The file may have another key by now.
        let offered = self.key.public().key_data();
        let known = self.secrets.key(&self.path);
        if let Some(known) = known.filter(|known| known.public_key().key_data() == offered) {
            return Ok(known);
        }
        // Tried once, and no person is asked: a configured passphrase that is wrong stays wrong.
        if let Some(source) = &self.host.passphrase {
            let passphrase = source
                .read()
                .await
                .map_err(|error| locked(format!("its passphrase: {error}")))?;
            return self
                .unlock(text, passphrase)
                .await
                .ok_or_else(|| locked("its configured passphrase is wrong"));
        }
        if !self.secrets.can_ask() || self.host.methods.prompts == 0 {
            return Err(locked("it needs a passphrase, and none is available"));
        }
        let mut wrong = 0;
        while wrong < self.host.methods.prompts {
            let refused = if wrong > 0 { REFUSED } else { "" };
            let question = Question {
                host: self.host.name.clone(),
                text: format!("{refused}passphrase of {}: ", self.path.display()),
                echo: false,
            };
            let Some(passphrase) = self.secrets.ask(&question).await else { break };
            if let Some(key) = self.unlock(text, passphrase).await {
                return Ok(key);
            }
            wrong += 1;
        }
        if wrong > 0 {
            return Err(locked(format!("its passphrase was wrong {wrong} times")));
        }
        Err(locked("it needs a passphrase, and none is available"))
    }

    async fn unlock(
        &self,
        text: &SecretString,
        passphrase: SecretString,
    ) -> Option<Arc<PrivateKey>> {
        let text = text.clone();
        // Key derivation may take seconds and would block the runtime.
        let key = tokio::task::spawn_blocking(move || unlock(&text, &passphrase)).await.ok()??;
        let key = Arc::new(key);
        self.secrets.keep_key(&self.path, Arc::clone(&key));
        Some(key)
    }
}
