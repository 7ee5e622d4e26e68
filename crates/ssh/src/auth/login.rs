//! The login: which methods are tried in which order, and what is reported if all fail.

use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::{MethodKind, MethodSet};
use tokio::time::{Instant, sleep, timeout};

use super::LoginSecrets;
use super::offer::Offer;
use crate::HostConfig;
use crate::trust::{HandshakeError, HostKeyCheck};

/// Maximum stages of one login, where the server wants several methods (RFC 4252 §5.1).
const MOST_STAGES: usize = 8;
/// Number of offered keys that may be too many for a server. The usual MaxAuthTries is 6.
const MANY_KEYS: usize = 4;
/// Time for russh to end after a connection was lost, and how often to look whether it has.
const RUSSH_ENDS: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// One login (RFC 4252) with ssh's order of methods: keys (of certificates, of the agent, of
/// files), keyboard-interactive, password. A server may require several, one after the other. No
/// key is offered twice, and nothing is tried again except what a person mistyped.
pub(crate) struct Login<'a> {
    pub(super) handle: &'a mut Handle<HostKeyCheck>,
    pub(super) host: &'a HostConfig,
    pub(super) secrets: &'a LoginSecrets,
    /// Methods that the server still accepts. `None` until it has refused one.
    pub(super) remaining: Option<MethodSet>,
    pub(super) offered: Vec<Offer>,
    /// Whether the server has refused an attempt, or wanted another one.
    has_refused: bool,
    /// Methods that were tried, or the reason why not, for the error.
    pub(super) tried: Vec<String>,
    /// Remaining time for the server, over all steps.
    pub(super) patience: Duration,
}

/// The server's answer to an attempt (RFC 4252 §5.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthAttempt {
    Success,
    /// The attempt succeeded, and the server requires another method.
    PartialSuccess,
    Failure,
}

impl<'a> Login<'a> {
    pub(crate) fn new(
        handle: &'a mut Handle<HostKeyCheck>,
        host: &'a HostConfig,
        secrets: &'a LoginSecrets,
        patience: Duration,
    ) -> Self {
        Self {
            handle,
            host,
            secrets,
            remaining: None,
            offered: Vec::new(),
            has_refused: false,
            tried: Vec::new(),
            patience,
        }
    }

    /// Logs in. The inner error lists what was tried.
    pub(crate) async fn run(mut self) -> Result<Result<(), String>, HandshakeError> {
        // Bounded, because a server could report a partial success without end.
        for _ in 0..MOST_STAGES {
            match self.stage().await {
                Ok(AuthAttempt::Success) => return Ok(Ok(())),
                Ok(AuthAttempt::PartialSuccess) => {
                    self.explain_last("which was right, and not enough")
                }
                Ok(AuthAttempt::Failure) if self.is_connection_lost().await => {
                    return Err(russh::Error::HUP.into());
                }
                Ok(AuthAttempt::Failure) => break,
                // The server disconnected, as after too many attempts: that is a failed login, too.
                Err(HandshakeError::Russh(error)) if self.has_refused => {
                    self.explain_last(&format!("the server hung up: {error}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.offered.len() >= MANY_KEYS {
            self.tried.push(format!(
                "and no other key (most servers hang up after a few: name the right one by IdentityFile with \
                 IdentitiesOnly yes, or by identity_file in [hosts.{}])",
                self.host.name
            ));
        }
        if self.tried.is_empty() {
            self.tried.push(self.why_nothing_was_tried());
        }
        Ok(Err(in_words(&self.tried)))
    }

    /// Adds an explanation to the method that was tried last.
    pub(super) fn explain_last(&mut self, why: &str) {
        match self.tried.last_mut() {
            Some(last) => *last = format!("{last} ({why})"),
            None => self.tried.push(format!("({why})")),
        }
    }

    fn why_nothing_was_tried(&self) -> String {
        if !self.host.methods.public_key {
            return "nothing: PubkeyAuthentication is off, and the server accepts none of the other \
                    methods that are allowed"
                .to_owned();
        }
        let files: Vec<_> =
            self.host.identity_files.iter().map(|file| file.display().to_string()).collect();
        format!("no key, for there is none at {}", files.join(", "))
    }

    /// Tries the methods until one succeeds.
    async fn stage(&mut self) -> Result<AuthAttempt, HandshakeError> {
        let methods = self.host.methods;
        if methods.public_key && self.may(MethodKind::PublicKey) {
            match Box::pin(self.public_keys()).await? {
                AuthAttempt::Failure => {}
                decided @ (AuthAttempt::Success | AuthAttempt::PartialSuccess) => {
                    return Ok(decided);
                }
            }
        }
        if self.remaining.is_none() && (methods.keyboard_interactive || methods.password) {
            // Nothing was offered yet, so ask for the list of methods (RFC 4252 §5.2).
            let call = self.handle.authenticate_none(self.host.user.clone());
            let result = within(&mut self.patience, call).await?;
            match self.note(&result) {
                AuthAttempt::Failure => {}
                decided @ (AuthAttempt::Success | AuthAttempt::PartialSuccess) => {
                    return Ok(decided);
                }
            }
        }
        if methods.keyboard_interactive && self.may(MethodKind::KeyboardInteractive) {
            match self.keyboard_interactive().await? {
                AuthAttempt::Failure => {}
                decided @ (AuthAttempt::Success | AuthAttempt::PartialSuccess) => {
                    return Ok(decided);
                }
            }
        }
        if methods.password && self.may(MethodKind::Password) {
            return self.password().await;
        }
        Ok(AuthAttempt::Failure)
    }

    /// Whether the connection was lost before the server has refused anything. A server that disconnects after a
    /// refusal may want no further attempts.
    async fn is_connection_lost(&self) -> bool {
        let closed = async {
            while !self.handle.is_closed() {
                sleep(LOOK_AGAIN).await;
            }
        };
        // russh reports a lost connection as a refusal without methods, and ends a moment later.
        let may_be_lost = !self.has_refused && self.remaining.is_some();
        may_be_lost && timeout(RUSSH_ENDS, closed).await.is_ok()
    }

    /// Whether the server still accepts a method.
    pub(super) fn may(&self, method: MethodKind) -> bool {
        self.remaining.as_ref().is_none_or(|remaining| remaining.contains(&method))
    }

    /// Notes that the server wants another attempt with one of these methods.
    pub(super) fn note_refusal(&mut self, remaining: MethodSet) {
        // russh reports a lost connection as a refusal after which no method remains.
        self.has_refused |= !remaining.is_empty();
        self.remaining = Some(remaining);
    }

    pub(super) fn note(&mut self, result: &AuthResult) -> AuthAttempt {
        match result {
            AuthResult::Success => AuthAttempt::Success,
            AuthResult::Failure {
                remaining_methods,
                partial_success,
            } => {
                self.note_refusal(remaining_methods.clone());
                if *partial_success {
                    AuthAttempt::PartialSuccess
                } else {
                    AuthAttempt::Failure
                }
            }
        }
    }
}

/// Waits for the server, at most for `patience`, and subtracts the time from it.
pub(super) async fn within<T>(
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

/// The methods that were tried, with the number of attempts of those that were tried several times.
fn in_words(tried: &[String]) -> String {
    let methods = tried.chunk_by(|one, next| one == next).filter_map(|attempts| {
        let method = attempts.first()?;
        Some(match attempts.len() {
            1 => method.clone(),
            count => format!("{method} ({count} times)"),
        })
    });
    methods.collect::<Vec<_>>().join(", ")
}
