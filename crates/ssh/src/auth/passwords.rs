//! Login by password and by keyboard-interactive questions.

use russh::MethodKind;
use russh::client::{KeyboardInteractiveAuthResponse as Response, Prompt};
use secrecy::{ExposeSecret, SecretString};

use super::Question;
use super::login::{AuthAttempt, Login, within};
use super::prompter::REFUSED;
use crate::trust::HandshakeError;
use sshjobs_output::printable;

/// Maximum information requests in one login (RFC 4256 §3.2).
const MOST_ROUNDS: usize = 16;

impl Login<'_> {
    /// Answers the server's questions (RFC 4256) with the configured password, or by asking a
    /// person.
    pub(super) async fn keyboard_interactive(&mut self) -> Result<AuthAttempt, HandshakeError> {
        // A configured password stays the same, so it is sent once.
        let tries = if self.asks_a_person() {
            self.host.methods.prompts
        } else {
            1
        };
        for attempt in 0..tries {
            let call = self
                .handle
                .authenticate_keyboard_interactive_start(self.host.user.clone(), None);
            let mut response = within(&mut self.patience, call).await?;
            self.tried.push("keyboard-interactive".to_owned());
            // Bounded, because a server could ask without end.
            for round in 0..MOST_ROUNDS {
                let (instructions, prompts) = match response {
                    Response::Success => return Ok(AuthAttempt::Success),
                    Response::Failure {
                        remaining_methods,
                        partial_success,
                    } => {
                        self.note_refusal(remaining_methods);
                        if partial_success {
                            return Ok(AuthAttempt::PartialSuccess);
                        }
                        break;
                    }
                    Response::InfoRequest {
                        instructions,
                        prompts,
                        ..
                    } => (instructions, prompts),
                };
                // A request without prompts also needs a response (RFC 4256 §3.4).
                let is_repeated = attempt > 0 && round == 0;
                let refused = if is_repeated { REFUSED } else { "" };
                let instructions = format!("{refused}{instructions}");
                let Some(answers) = self.answers(round, &instructions, &prompts).await else {
                    // The request of the next method aborts this one (RFC 4252 §5.1).
                    return Ok(AuthAttempt::Failure);
                };
                let call = self.handle.authenticate_keyboard_interactive_respond(answers);
                response = within(&mut self.patience, call).await?;
            }
            if !self.may(MethodKind::KeyboardInteractive) {
                break;
            }
        }
        Ok(AuthAttempt::Failure)
    }

    async fn answers(
        &mut self,
        round: usize,
        instructions: &str,
        prompts: &[Prompt],
    ) -> Option<Vec<String>> {
        let mut answers = Vec::new();
        for prompt in prompts {
            // The configured password answers the first question, if that asks for a password, and
            // no other.
            let asks_for_one = !prompt.echo && prompt.prompt.to_lowercase().contains("password");
            let is_password = round == 0 && answers.is_empty() && asks_for_one;
            let configured = if is_password {
                self.configured_password().await
            } else {
                None
            };
            let answer = match configured {
                Some(password) => Some(password),
                None => {
                    self.ask(
                        format!("{instructions}\n{}", prompt.prompt).trim_start(),
                        prompt.echo,
                    )
                    .await
                }
            };
            let Some(answer) = answer else {
                let shown: String = printable(&prompt.prompt).chars().take(80).collect();
                self.tried.push(format!(
                    " (it asks {:?}, and no person can answer)",
                    shown.trim()
                ));
                return None;
            };
            answers.push(answer.expose_secret().to_owned());
        }
        Some(answers)
    }

    /// Sends a password (RFC 4252 §8): the one that succeeded before, the configured one, or one
    /// typed by a person.
    pub(super) async fn password(&mut self) -> Result<AuthAttempt, HandshakeError> {
        if let Some(known) = self.secrets.password(self.host) {
            let attempt = self.send_password(&known).await?;
            if attempt == AuthAttempt::Failure {
                // It no longer works, so the next login must not send it.
                self.secrets.keep_password(self.host, None);
            }
            return Ok(attempt);
        }
        if let Some(configured) = self.configured_password().await {
            return self.send_password(&configured).await;
        }
        let prompts = if self.asks_a_person() {
            self.host.methods.prompts
        } else {
            0
        };
        let mut was_asked = false;
        for _ in 0..prompts {
            let refused = if was_asked { REFUSED } else { "" };
            let user = &self.host.user;
            let question = format!("{refused}{user}@{}'s password: ", self.host.address);
            let Some(password) = self.ask(&question, false).await else { break };
            was_asked = true;
            let attempt = self.send_password(&password).await?;
            // A partial success also proves that the password is right.
            if attempt != AuthAttempt::Failure {
                self.secrets.keep_password(self.host, Some(password));
                return Ok(attempt);
            }
            if !self.may(MethodKind::Password) {
                return Ok(AuthAttempt::Failure);
            }
        }
        if !was_asked {
            self.tried.push("password (no password is available)".to_owned());
        }
        Ok(AuthAttempt::Failure)
    }

    async fn send_password(
        &mut self,
        password: &SecretString,
    ) -> Result<AuthAttempt, HandshakeError> {
        self.tried.push("password".to_owned());
        let call = self
            .handle
            .authenticate_password(self.host.user.clone(), password.expose_secret());
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
        let question = Question {
            host: self.host.name.clone(),
            text: text.to_owned(),
            echo,
        };
        self.secrets.ask(&question).await
    }
}
