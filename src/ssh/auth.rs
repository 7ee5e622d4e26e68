use std::path::{Path, PathBuf};
use std::time::Duration;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse as Response, Prompt};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{self, Algorithm, Certificate, HashAlg, PublicKey};
use russh::{MethodKind, MethodSet, Signer};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::files::off_runtime;
use super::host_key::{HandshakeError, HostKeyCheck, short_rsa};
use super::key_file::{self, KeyFile, NoKey};
use super::signer::{Agent, Busy, File, NoSignature};
use super::{HostConfig, Question, Secrets};

/// How long the agent may take to list its keys.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that asks for more logins in a row than this is not one to go on with.
const MOST_STAGES: usize = 8;
/// Nor is one that asks a person more questions than this.
const MOST_ROUNDS: usize = 16;

/// One login (RFC 4252), in ssh's order: keys (of certificates, of the agent, of files), keyboard-interactive, password. Where
/// the server wants several, one after the other. No key is offered twice, and nothing is tried again but what a person
/// mistyped.
pub(super) struct Login<'a> {
    handle: &'a mut Handle<HostKeyCheck>,
    host: &'a HostConfig,
    secrets: &'a Secrets,
    /// The methods that the server still takes; unknown until it has refused one.
    remaining: Option<MethodSet>,
    offered: Vec<Offer>,
    /// What was offered, or why it was not; for the error.
    tried: Vec<String>,
    /// How long the server may still take, over all steps.
    patience: Duration,
}

/// What may be offered to the server.
#[derive(Clone, PartialEq)]
enum Offer {
    /// Without its comment, which makes no difference.
    Key(PublicKey),
    Certificate(Box<Certificate>),
}

impl Offer {
    fn key(key: &PublicKey) -> Self {
        Self::Key(key.key_data().clone().into())
    }

    fn certificate(certificate: Certificate) -> Self {
        Self::Certificate(Box::new(certificate))
    }

    fn public(&self) -> &KeyData {
        match self {
            Self::Key(key) => key.key_data(),
            Self::Certificate(certificate) => certificate.public_key(),
        }
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    LetIn,
    /// It was right, and the server wants another one (RFC 4252 §5.1).
    Partial,
    Refused,
}

impl<'a> Login<'a> {
    pub(super) fn new(
        handle: &'a mut Handle<HostKeyCheck>,
        host: &'a HostConfig,
        secrets: &'a Secrets,
        patience: Duration,
    ) -> Self {
        Self { handle, host, secrets, remaining: None, offered: Vec::new(), tried: Vec::new(), patience }
    }

    /// Logs in, or says what was tried.
    pub(super) async fn run(mut self) -> Result<Result<(), String>, HandshakeError> {
        for _ in 0..MOST_STAGES {
            match self.stage().await {
                Ok(Attempt::LetIn) => return Ok(Ok(())),
                Ok(Attempt::Partial) => self.tried.push("(which was right, and not enough)".to_owned()),
                Ok(Attempt::Refused) => break,
                // As after too many attempts: that is a failed login, too.
                Err(HandshakeError::Russh(error)) if !self.tried.is_empty() => {
                    self.tried.push(format!("(the server hung up: {error})"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.tried.is_empty() {
            let files: Vec<_> =
                self.host.identity_files.iter().map(|file| file.display().to_string()).collect();
            self.tried.push(format!("no key, for there is none at {}", files.join(", ")));
        }
        Ok(Err(self.tried.join(", ")))
    }

    /// Goes through the methods until one is right.
    async fn stage(&mut self) -> Result<Attempt, HandshakeError> {
        let methods = self.host.methods;
        if methods.public_key && self.may(MethodKind::PublicKey) {
            match self.public_keys().await? {
                Attempt::Refused => {}
                decided @ (Attempt::LetIn | Attempt::Partial) => return Ok(decided),
            }
        }
        if self.remaining.is_none() && (methods.keyboard_interactive || methods.password) {
            // Nothing was offered yet: ask what there is (RFC 4252 §5.2).
            let call = self.handle.authenticate_none(self.host.user.clone());
            let result = within(&mut self.patience, call).await?;
            match self.note(&result) {
                Attempt::Refused => {}
                decided @ (Attempt::LetIn | Attempt::Partial) => return Ok(decided),
            }
        }
        if methods.keyboard_interactive && self.may(MethodKind::KeyboardInteractive) {
            match self.keyboard_interactive().await? {
                Attempt::Refused => {}
                decided @ (Attempt::LetIn | Attempt::Partial) => return Ok(decided),
            }
        }
        if methods.password && self.may(MethodKind::Password) {
            return self.password().await;
        }
        Ok(Attempt::Refused)
    }

    fn may(&self, method: MethodKind) -> bool {
        self.remaining.as_ref().is_none_or(|remaining| remaining.contains(&method))
    }

    fn note(&mut self, result: &AuthResult) -> Attempt {
        match result {
            AuthResult::Success => Attempt::LetIn,
            AuthResult::Failure { remaining_methods, partial_success } => {
                self.remaining = Some(remaining_methods.clone());
                if *partial_success { Attempt::Partial } else { Attempt::Refused }
            }
        }
    }

    async fn public_keys(&mut self) -> Result<Attempt, HandshakeError> {
        let (mut agent, identities) = match self.agent().await {
            Some((agent, identities)) => (Some(agent), identities),
            None => (None, Vec::new()),
        };
        let files = &self.host.identity_files;
        let (certificate_files, own_files) = (self.host.certificate_files.clone(), files.clone());
        let first = certificate_files.first().or(own_files.first()).cloned().unwrap_or_default();
        let certificates =
            off_runtime(&first, move || key_file::certificates(&certificate_files, &own_files)).await;
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
            if attempt != Attempt::Refused || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        for identity in identities {
            let Some(agent) = &mut agent else { break };
            let attempt = match identity {
                AgentIdentity::Certificate { certificate, .. } => {
                    self.certificate_of_agent(certificate, agent).await?
                }
                AgentIdentity::PublicKey { key, comment } => self.key_of_agent(&key, &comment, agent).await?,
            };
            if attempt != Attempt::Refused || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        for file in files {
            let attempt = self.key_of_file(file).await?;
            if attempt != Attempt::Refused || !self.may(MethodKind::PublicKey) {
                return Ok(attempt);
            }
        }
        Ok(Attempt::Refused)
    }

    /// The agent and its keys, those first that are also configured.
    async fn agent(&mut self) -> Option<(AgentClient<UnixStream>, Vec<AgentIdentity>)> {
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
        let configured: Vec<PublicKey> =
            off_runtime(&first, move || files.iter().filter_map(|file| key_file::public_key(file)).collect())
                .await
                .unwrap_or_default();
        let is_configured = |identity: &AgentIdentity| {
            configured.iter().any(|own| own.key_data() == identity.public_key().key_data())
        };
        if self.host.identities_only {
            identities.retain(is_configured);
        }
        identities.sort_by_key(|identity| !is_configured(identity));
        Some((agent, identities))
    }

    /// Whether this is one to offer now; says so if it is.
    fn offers(&mut self, offer: &Offer, shown: String) -> bool {
        if let Some(bits) = short_rsa(offer.public(), self.host.shortest_rsa) {
            self.tried.push(format!("{shown} (not offered: RSA of {bits} bits is too short)"));
            return false;
        }
        if self.offered.contains(offer) {
            return false;
        }
        self.offered.push(offer.clone());
        self.tried.push(shown);
        true
    }

    /// Offers a key or certificate; the signer signs if the server takes it, and is `busy` meanwhile.
    async fn present<S>(
        &mut self,
        offer: Offer,
        shown: String,
        (mut signer, busy): (S, Busy),
    ) -> Result<Attempt, HandshakeError>
    where
        S: Signer<Error = NoSignature> + Send,
    {
        if !self.offers(&offer, shown) {
            return Ok(Attempt::Refused);
        }
        let hash = self.hash_for(&offer.public().algorithm()).await?;
        let (user, patience) = (self.host.user.clone(), &mut self.patience);
        let result = match offer {
            Offer::Key(key) => {
                let call = self.handle.authenticate_publickey_with(user, key, hash, &mut signer);
                busy.within(patience, call).await
            }
            Offer::Certificate(certificate) => {
                let call = self.handle.authenticate_certificate_with(user, *certificate, hash, &mut signer);
                busy.within(patience, call).await
            }
        };
        self.signed(result)
    }

    async fn certificate_of_agent(
        &mut self,
        certificate: Certificate,
        agent: &mut AgentClient<UnixStream>,
    ) -> Result<Attempt, HandshakeError> {
        let shown = format!("certificate {:?} of the agent", certificate.key_id());
        self.present(Offer::certificate(certificate), shown, Agent::signer(agent)).await
    }

    async fn certificate_of_file(
        &mut self,
        certificate: Certificate,
        file: &Path,
    ) -> Result<Attempt, HandshakeError> {
        let shown = format!("certificate {:?} with {}", certificate.key_id(), file.display());
        let Some(key) = self.load(file).await else { return Ok(Attempt::Refused) };
        self.present(Offer::certificate(certificate), shown, self.file(file, key)).await
    }

    async fn key_of_agent(
        &mut self,
        key: &PublicKey,
        comment: &str,
        agent: &mut AgentClient<UnixStream>,
    ) -> Result<Attempt, HandshakeError> {
        let shown = format!("agent key {} {comment}", key.fingerprint(HashAlg::Sha256));
        self.present(Offer::key(key), shown, Agent::signer(agent)).await
    }

    async fn key_of_file(&mut self, file: &Path) -> Result<Attempt, HandshakeError> {
        let Some(key) = self.load(file).await else { return Ok(Attempt::Refused) };
        let offer = Offer::key(key.public());
        self.present(offer, file.display().to_string(), self.file(file, key)).await
    }

    fn file(&self, path: &Path, key: KeyFile) -> (File<'a>, Busy) {
        let busy = Busy::default();
        let (path, host, secrets) = (path.to_owned(), self.host, self.secrets);
        (File { path, key, host, secrets, busy: busy.clone() }, busy)
    }

    async fn load(&mut self, file: &Path) -> Option<KeyFile> {
        let path = file.to_owned();
        let loaded = off_runtime(file, move || KeyFile::load(&path)).await;
        match loaded.unwrap_or_else(|error| Err(NoKey::Unusable(error.to_string()))) {
            Ok(key) => Some(key),
            Err(NoKey::Missing) => None,
            Err(NoKey::Unusable(why)) => {
                self.tried.push(format!("{} ({why})", file.display()));
                None
            }
        }
    }

    /// A signer that gave no signature is as good as a refusal: the connection goes on.
    fn signed(&mut self, result: Result<AuthResult, NoSignature>) -> Result<Attempt, HandshakeError> {
        match result {
            Ok(result) => Ok(self.note(&result)),
            Err(NoSignature::Send(_)) => Err(russh::Error::SendError.into()),
            Err(NoSignature::ServerSilent) => Err(HandshakeError::Silent),
            Err(error) => {
                self.tried.push(format!("({error})"));
                Ok(Attempt::Refused)
            }
        }
    }

    /// Lets a person, or the configured password, answer the server's questions (RFC 4256).
    async fn keyboard_interactive(&mut self) -> Result<Attempt, HandshakeError> {
        let tries = if self.asks_a_person() { self.host.methods.prompts } else { 1 };
        for _ in 0..tries {
            let call = self.handle.authenticate_keyboard_interactive_start(self.host.user.clone(), None);
            let mut response = within(&mut self.patience, call).await?;
            self.tried.push("keyboard-interactive".to_owned());
            for round in 0..MOST_ROUNDS {
                let (instructions, prompts) = match response {
                    Response::Success => return Ok(Attempt::LetIn),
                    Response::Failure { remaining_methods, partial_success } => {
                        self.remaining = Some(remaining_methods);
                        if partial_success {
                            return Ok(Attempt::Partial);
                        }
                        break;
                    }
                    Response::InfoRequest { instructions, prompts, .. } => (instructions, prompts),
                };
                let Some(answers) = self.answers(round, &instructions, &prompts).await else {
                    return Ok(Attempt::Refused);
                };
                let call = self.handle.authenticate_keyboard_interactive_respond(answers);
                response = within(&mut self.patience, call).await?;
            }
            if !self.may(MethodKind::KeyboardInteractive) {
                break;
            }
        }
        Ok(Attempt::Refused)
    }

    async fn answers(&mut self, round: usize, instructions: &str, prompts: &[Prompt]) -> Option<Vec<String>> {
        let mut answers = Vec::new();
        for prompt in prompts {
            // The configured password is for the first question, if it asks for one, and for no other.
            let asks_for_one = !prompt.echo && prompt.prompt.to_lowercase().contains("password");
            let is_password = round == 0 && answers.is_empty() && asks_for_one;
            let configured = if is_password { self.configured_password().await } else { None };
            let answer = match configured {
                Some(password) => Some(password),
                None => {
                    self.ask(format!("{instructions}\n{}", prompt.prompt).trim_start(), prompt.echo).await
                }
            };
            let Some(answer) = answer else {
                let shown: String = prompt.prompt.chars().filter(|c| !c.is_control()).take(80).collect();
                self.tried.push(format!("(it asks {:?}, and nobody answers)", shown.trim()));
                return None;
            };
            answers.push(answer.expose_secret().to_owned());
        }
        Some(answers)
    }

    async fn password(&mut self) -> Result<Attempt, HandshakeError> {
        if let Some(known) = self.secrets.password(self.host) {
            let attempt = self.send_password(&known).await?;
            if attempt == Attempt::Refused {
                self.secrets.keep_password(self.host, None);
            }
            return Ok(attempt);
        }
        if let Some(configured) = self.configured_password().await {
            return self.send_password(&configured).await;
        }
        for _ in 0..if self.asks_a_person() { self.host.methods.prompts } else { 0 } {
            let question = format!("{}@{}'s password: ", self.host.user, self.host.address);
            let Some(password) = self.ask(&question, false).await else { break };
            let attempt = self.send_password(&password).await?;
            if attempt != Attempt::Refused {
                self.secrets.keep_password(self.host, Some(password));
                return Ok(attempt);
            }
            if !self.may(MethodKind::Password) {
                return Ok(Attempt::Refused);
            }
        }
        self.tried.push("password (nobody gives one)".to_owned());
        Ok(Attempt::Refused)
    }

    async fn send_password(&mut self, password: &SecretString) -> Result<Attempt, HandshakeError> {
        self.tried.push("password".to_owned());
        let call = self.handle.authenticate_password(self.host.user.clone(), password.expose_secret());
        let result = within(&mut self.patience, call).await?;
        Ok(self.note(&result))
    }

    async fn configured_password(&mut self) -> Option<SecretString> {
        match self.host.password.as_ref()?.read().await {
            Ok(password) => Some(password),
            Err(error) => {
                self.tried.push(format!("password ({error})"));
                None
            }
        }
    }

    fn asks_a_person(&self) -> bool {
        self.host.password.is_none() && self.secrets.can_ask() && self.host.methods.prompts > 0
    }

    async fn ask(&self, text: &str, echo: bool) -> Option<SecretString> {
        if self.host.methods.prompts == 0 {
            return None;
        }
        let question = Question { host: self.host.name.clone(), text: text.to_owned(), echo };
        self.secrets.ask(&question).await
    }

    /// RSA keys sign with SHA-2: the best the server names, never SHA-1.
    async fn hash_for(&mut self, algorithm: &Algorithm) -> Result<Option<HashAlg>, HandshakeError> {
        if !matches!(algorithm, Algorithm::Rsa { .. }) {
            return Ok(None);
        }
        let best = within(&mut self.patience, self.handle.best_supported_rsa_hash()).await?.flatten();
        Ok(Some(best.unwrap_or(HashAlg::Sha512)))
    }
}

async fn key_of(files: &[PathBuf], key: &KeyData) -> Option<PathBuf> {
    let (files, key) = (files.to_vec(), key.clone());
    let first = files.first().cloned().unwrap_or_default();
    off_runtime(&first, move || key_file::for_certificate(&files, &key)).await.ok()?
}

/// Waits for the server, and takes the time from its `patience`.
async fn within<T>(
    patience: &mut Duration,
    call: impl Future<Output = Result<T, russh::Error>>,
) -> Result<T, HandshakeError> {
    let began = Instant::now();
    let result = timeout(*patience, call).await;
    *patience = patience.saturating_sub(began.elapsed());
    match result {
        Ok(result) => Ok(result?),
        Err(_) => Err(HandshakeError::Silent),
    }
}
