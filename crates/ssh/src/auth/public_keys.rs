//! Login by keys and certificates, from the agent and from files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use russh::client::AuthResult;
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{self, Algorithm, Certificate, HashAlg, PublicKey};
use russh::{MethodKind, Signer};
use tokio::time::timeout;

use super::key_file::{self, KeyFile, NoKey};
use super::login::{AuthAttempt, Login, within};
use super::offer::Offer;
use super::signer::{Agent, AgentConnection, File, NoSignature, SigningTime};
use crate::files::off_runtime;
use crate::trust::{HandshakeError, short_rsa};

/// Time limit for the agent to list its keys.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

impl<'a> Login<'a> {
    /// Offers certificates, the keys of the agent and those of files, in ssh's order.
    pub(super) async fn public_keys(&mut self) -> Result<AuthAttempt, HandshakeError> {
        let (mut agent, identities) = match self.agent().await {
            Some((agent, identities)) => (Some(agent), identities),
            None => (None, Vec::new()),
        };
        let files = &self.host.identity_files;
        let certificate_files = self.host.certificate_files.clone();
        let own_files = files.clone();
        // One read covers all files. `off_runtime` identifies it by the first.
        let first = certificate_files.first().or(own_files.first()).cloned().unwrap_or_default();
        let certificates = off_runtime(&first, move || {
            key_file::certificates(&certificate_files, &own_files)
        })
        .await;
        let certificates = certificates.unwrap_or_else(|error| {
            self.tried.push(format!("certificates ({error})"));
            Vec::new()
        });
        for certificate in certificates {
            let held = identities
                .iter()
                .any(|identity| identity.public_key().key_data() == certificate.public_key());
            let attempt = match (&mut agent, held) {
                (Some(agent), true) => self.certificate_of_agent(certificate, agent).await?,
                _ => match key_of(files, certificate.public_key()).await {
                    Some(file) => self.certificate_of_file(certificate, &file).await?,
                    None => continue,
                },
            };
            // Ends on any success, and when the server accepts no more keys.
            if attempt != AuthAttempt::Failure || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        for identity in identities {
            let Some(agent) = &mut agent else { break };
            let attempt = match identity {
                AgentIdentity::Certificate { certificate, .. } => {
                    self.certificate_of_agent(certificate, agent).await?
                }
                AgentIdentity::PublicKey { key, comment } => {
                    self.key_of_agent(&key, &comment, agent).await?
                }
            };
            if attempt != AuthAttempt::Failure || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        for file in files {
            let attempt = self.key_of_file(file).await?;
            if attempt != AuthAttempt::Failure || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        Ok(AuthAttempt::Failure)
    }

    /// The agent and its keys. Keys that are also configured come first.
    async fn agent(&mut self) -> Option<(AgentConnection, Vec<AgentIdentity>)> {
        let socket = self.host.agent.as_ref()?;
        let connected = async {
            let mut agent = AgentClient::connect_uds(socket).await?;
            let identities = agent.request_identities().await?;
            Ok::<_, keys::Error>((agent, identities))
        };
        let (agent, mut identities) = match timeout(AGENT_TIMEOUT, connected).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                self.tried.push(format!("agent ({error})"));
                return None;
            }
            Err(_) => {
                self.tried.push(format!("agent (silent for {AGENT_TIMEOUT:?})"));
                return None;
            }
        };
        let files = self.host.identity_files.clone();
        let first = files.first().cloned().unwrap_or_default();
        let configured: Vec<PublicKey> = off_runtime(&first, move || {
            files.iter().filter_map(|file| key_file::public_key(file)).collect()
        })
        .await
        .unwrap_or_default();
        if self.host.identities_only {
            identities.retain(|identity| has_key_of(&configured, identity));
        }
        // Servers count offers (MaxAuthTries), so the likeliest keys come first.
        identities.sort_by_key(|identity| !has_key_of(&configured, identity));
        Some((AgentConnection::new(agent), identities))
    }

    /// Whether to offer this key now. Marks it as offered.
    fn offers(&mut self, offer: &Offer, shown: String) -> bool {
        if let Some(bits) = short_rsa(offer.public(), self.host.shortest_rsa) {
            self.tried.push(format!(
                "{shown} (not offered: RSA of {bits} bits is too short)"
            ));
            return false;
        }
        // A file may have the same key as the agent.
        if self.offered.contains(offer) {
            return false;
        }
        self.offered.push(offer.clone());
        self.tried.push(shown);
        true
    }

    /// Offers a key or certificate. If the server accepts it, the signer signs; the time it takes
    /// is noted in `busy`.
    async fn present<S>(
        &mut self,
        offer: Offer,
        shown: String,
        mut signer: S,
        busy: SigningTime,
    ) -> Result<AuthAttempt, HandshakeError>
    where
        S: Signer<Error = NoSignature> + Send,
    {
        if !self.offers(&offer, shown) {
            return Ok(AuthAttempt::Failure);
        }
        // After the check above: russh may wait a second for the server's list of algorithms.
        let hash = self.hash_for(&offer.public().algorithm()).await?;
        let user = self.host.user.clone();
        let patience = &mut self.patience;
        let result = match offer {
            Offer::Key(key) => {
                let call = self.handle.authenticate_publickey_with(user, key, hash, &mut signer);
                busy.within(patience, call).await
            }
            Offer::Certificate(certificate) => {
                let call = self.handle.authenticate_certificate_with(
                    user,
                    *certificate,
                    hash,
                    &mut signer,
                );
                busy.within(patience, call).await
            }
        };
        self.signed(result)
    }

    async fn certificate_of_agent(
        &mut self,
        certificate: Certificate,
        agent: &mut AgentConnection,
    ) -> Result<AuthAttempt, HandshakeError> {
        let shown = format!("certificate {:?} of the agent", certificate.key_id());
        let (signer, busy) = Agent::signer(agent);
        self.present(Offer::certificate(certificate), shown, signer, busy).await
    }

    async fn certificate_of_file(
        &mut self,
        certificate: Certificate,
        file: &Path,
    ) -> Result<AuthAttempt, HandshakeError> {
        let shown = format!(
            "certificate {:?} with {}",
            certificate.key_id(),
            file.display()
        );
        let Some(key) = self.load(file).await else { return Ok(AuthAttempt::Failure) };
        let (signer, busy) = self.file(file, key);
        self.present(Offer::certificate(certificate), shown, signer, busy).await
    }

    async fn key_of_agent(
        &mut self,
        key: &PublicKey,
        comment: &str,
        agent: &mut AgentConnection,
    ) -> Result<AuthAttempt, HandshakeError> {
        let shown = format!("agent key {} {comment}", key.fingerprint(HashAlg::Sha256));
        let (signer, busy) = Agent::signer(agent);
        self.present(Offer::key(key), shown, signer, busy).await
    }

    async fn key_of_file(&mut self, file: &Path) -> Result<AuthAttempt, HandshakeError> {
        let Some(key) = self.load(file).await else { return Ok(AuthAttempt::Failure) };
        let offer = Offer::key(key.public());
        let (signer, busy) = self.file(file, key);
        self.present(offer, file.display().to_string(), signer, busy).await
    }

    /// The signer for a key that was loaded from `path`, and the measure of its signing time.
    fn file(&self, path: &Path, key: KeyFile) -> (File<'a>, SigningTime) {
        let busy = SigningTime::default();
        let path = path.to_owned();
        let host = self.host;
        let secrets = self.secrets;
        (
            File {
                path,
                key,
                host,
                secrets,
                busy: busy.clone(),
            },
            busy,
        )
    }

    async fn load(&mut self, file: &Path) -> Option<KeyFile> {
        let path = file.to_owned();
        let loaded = off_runtime(file, move || KeyFile::load(&path)).await;
        match loaded.unwrap_or_else(|error| Err(NoKey::Unusable(error.to_string()))) {
            Ok(key) => Some(key),
            Err(NoKey::Missing) => {
                if !is_default_name(file) {
                    self.tried.push(format!("{} (there is no such file)", file.display()));
                }
                None
            }
            Err(NoKey::Unusable(why)) => {
                self.tried.push(format!("{} ({why})", file.display()));
                None
            }
        }
    }

    /// Converts a missing signature into a failed attempt, because the connection is still usable.
    fn signed(
        &mut self,
        result: Result<AuthResult, NoSignature>,
    ) -> Result<AuthAttempt, HandshakeError> {
        match result {
            Ok(result) => Ok(self.note(&result)),
            Err(NoSignature::Send(_)) => Err(russh::Error::SendError.into()),
            Err(NoSignature::ServerSilent) => Err(HandshakeError::Silent),
            // russh has abandoned the signature request, so another key can be offered.
            Err(error) => {
                self.explain_last(&error.to_string());
                Ok(AuthAttempt::Failure)
            }
        }
    }

    /// The hash for RSA signatures: the best variant of SHA-2 that the server lists, never SHA-1.
    async fn hash_for(&mut self, algorithm: &Algorithm) -> Result<Option<HashAlg>, HandshakeError> {
        if !matches!(algorithm, Algorithm::Rsa { .. }) {
            return Ok(None);
        }
        let best = within(&mut self.patience, self.handle.best_supported_rsa_hash())
            .await?
            .flatten();
        // A server without a list (RFC 8308 §3.1), or with SHA-1 only, has to judge the offer.
        Ok(Some(best.unwrap_or(HashAlg::Sha512)))
    }
}

async fn key_of(files: &[PathBuf], key: &KeyData) -> Option<PathBuf> {
    let files = files.to_vec();
    let key = key.clone();
    let first = files.first().cloned().unwrap_or_default();
    off_runtime(&first, move || key_file::for_certificate(&files, &key))
        .await
        .ok()?
}

/// Whether a key file has a name that ssh tries without being told (ssh_config(5), IdentityFile). Most people have one of them.
fn is_default_name(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_in_ssh = file.parent().is_some_and(|parent| parent.ends_with(".ssh"));
    is_in_ssh
        && matches!(
            name,
            "id_rsa"
                | "id_ecdsa"
                | "id_ecdsa_sk"
                | "id_ed25519"
                | "id_ed25519_sk"
                | "id_xmss"
                | "id_dsa"
        )
}

/// Whether one of the keys is that of an agent's identity.
fn has_key_of(keys: &[PublicKey], identity: &AgentIdentity) -> bool {
    keys.iter().any(|key| key.key_data() == identity.public_key().key_data())
}
