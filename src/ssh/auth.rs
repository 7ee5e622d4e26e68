use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{self, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use tokio::time::timeout;

use super::HostConfig;
use super::host_key::{HandshakeError, HostKeyCheck};

/// How long the agent may take to list its keys. Signing may wait for a touch or a prompt and has the step's own limit.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The attempts of one login, in ssh's order: keys of the agent, then key files. Nothing is tried twice.
pub(super) struct Login<'a> {
    handle: &'a mut Handle<HostKeyCheck>,
    host: &'a HostConfig,
    offered: Vec<PublicKey>,
    /// What was offered, or why it was not; for the error.
    tried: Vec<String>,
}

/// Whether there is a point in going on.
enum Attempt {
    LetIn,
    Refused,
    /// The server takes no more keys.
    GiveUp,
}

impl<'a> Login<'a> {
    pub(super) fn new(handle: &'a mut Handle<HostKeyCheck>, host: &'a HostConfig) -> Self {
        Self { handle, host, offered: Vec::new(), tried: Vec::new() }
    }

    /// Logs in, or says what was tried.
    pub(super) async fn run(mut self) -> Result<Result<(), String>, HandshakeError> {
        let mut attempt = self.agent().await?;
        for file in &self.host.identity_files {
            if !matches!(attempt, Attempt::Refused) {
                break;
            }
            attempt = self.key_file(file).await?;
        }
        if self.tried.is_empty() {
            let files: Vec<_> =
                self.host.identity_files.iter().map(|file| file.display().to_string()).collect();
            self.tried.push(format!("no key, for there is none at {}", files.join(", ")));
        }
        let tried = self.tried.join(", ");
        Ok(if matches!(attempt, Attempt::LetIn) { Ok(()) } else { Err(tried) })
    }

    async fn agent(&mut self) -> Result<Attempt, HandshakeError> {
        let Some(socket) = &self.host.agent else { return Ok(Attempt::Refused) };
        let connected = async {
            let mut agent = AgentClient::connect_uds(socket).await?;
            let identities = agent.request_identities().await?;
            Ok::<_, keys::Error>((agent, identities))
        };
        let (mut agent, identities) = match timeout(AGENT_TIMEOUT, connected).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Ok(self.pass_over(format!("agent ({error})"))),
            Err(_) => return Ok(self.pass_over(format!("agent (silent for {AGENT_TIMEOUT:?})"))),
        };
        let configured = self.configured_public_keys();
        for identity in identities {
            let AgentIdentity::PublicKey { key, comment } = identity else { continue };
            if self.host.identities_only && !configured.iter().any(|own| own.key_data() == key.key_data()) {
                continue;
            }
            self.tried.push(format!("agent key {} {comment}", key.fingerprint(HashAlg::Sha256)));
            self.offered.push(key.clone());
            let hash = self.hash_for(&key).await?;
            let user = self.host.user.clone();
            match self.handle.authenticate_publickey_with(user, key, hash, &mut agent).await {
                Ok(result) => match verdict(&result) {
                    Attempt::Refused => {}
                    decided @ (Attempt::LetIn | Attempt::GiveUp) => return Ok(decided),
                },
                // The agent did not sign; the connection goes on.
                Err(error) => self.tried.push(format!("(agent: {error})")),
            }
        }
        Ok(Attempt::Refused)
    }

    async fn key_file(&mut self, file: &Path) -> Result<Attempt, HandshakeError> {
        let shown = file.display();
        let key = match load(file) {
            Ok(key) => key,
            Err(NoKey::Missing) => return Ok(Attempt::Refused),
            Err(NoKey::Unusable(why)) => return Ok(self.pass_over(format!("{shown} ({why})"))),
        };
        if self.offered.iter().any(|offered| offered.key_data() == key.public_key().key_data()) {
            return Ok(Attempt::Refused);
        }
        self.tried.push(shown.to_string());
        let hash = self.hash_for(key.public_key()).await?;
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        let result = self.handle.authenticate_publickey(self.host.user.clone(), key).await?;
        Ok(verdict(&result))
    }

    fn pass_over(&mut self, why: String) -> Attempt {
        self.tried.push(why);
        Attempt::Refused
    }

    fn configured_public_keys(&self) -> Vec<PublicKey> {
        let public = |file: &std::path::PathBuf| {
            let mut beside = file.clone().into_os_string();
            beside.push(".pub");
            keys::load_public_key(beside).ok().or_else(|| Some(load(file).ok()?.public_key().clone()))
        };
        self.host.identity_files.iter().filter_map(public).collect()
    }

    /// RSA keys sign with SHA-2: the best the server names, never SHA-1.
    async fn hash_for(&self, key: &PublicKey) -> Result<Option<HashAlg>, HandshakeError> {
        if !key.algorithm().is_rsa() {
            return Ok(None);
        }
        let best = self.handle.best_supported_rsa_hash().await?.flatten();
        Ok(Some(best.unwrap_or(HashAlg::Sha512)))
    }
}

fn verdict(result: &AuthResult) -> Attempt {
    match result {
        AuthResult::Success => Attempt::LetIn,
        AuthResult::Failure { remaining_methods, .. } => {
            if remaining_methods.contains(&russh::MethodKind::PublicKey) {
                Attempt::Refused
            } else {
                Attempt::GiveUp
            }
        }
    }
}

enum NoKey {
    Missing,
    Unusable(String),
}

fn load(file: &Path) -> Result<PrivateKey, NoKey> {
    let unusable = |error: &dyn std::fmt::Display| NoKey::Unusable(error.to_string());
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NoKey::Missing),
        Err(error) => return Err(unusable(&error)),
    };
    if others_can_read(file).map_err(|error| unusable(&error))? {
        return Err(NoKey::Unusable("others can read it; chmod 600 it".to_owned()));
    }
    match keys::decode_secret_key(&text, None) {
        Ok(key) => Ok(key),
        Err(keys::Error::KeyIsEncrypted) => {
            Err(NoKey::Unusable("needs a passphrase; add it to an ssh-agent".to_owned()))
        }
        Err(error) => Err(unusable(&error)),
    }
}

/// ssh ignores private keys that others can read, and so do we.
fn others_can_read(file: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::metadata(file)?.permissions().mode() & 0o077 != 0)
}
