//! Keys and passwords that a caller's logins have used, and the prompter for others. They stay in
//! memory until the program ends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use russh::keys::PrivateKey;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::prompter::PERSON_TIMEOUT;
use super::{Prompter, Question};
use crate::HostConfig;
use sshjobs_base::lock::lock;

/// Keys and passwords that succeeded, and the prompter for others. A secret that succeeded is not
/// asked for again.
#[derive(Default)]
pub struct LoginSecrets {
    prompter: Option<Arc<dyn Prompter>>,
    keys: Mutex<HashMap<PathBuf, Arc<PrivateKey>>>,
    // By all settings, so that a changed address or account never gets an old password.
    passwords: Mutex<HashMap<HostConfig, SecretString>>,
    /// Passwords that a host's sudo, doas or su accepted. Key: the account whose password it is;
    /// `None` for the one that logs in.
    become_passwords: Mutex<HashMap<(HostConfig, Option<String>), SecretString>>,
    /// Allows one question at a time.
    asking: tokio::sync::Mutex<()>,
}

impl LoginSecrets {
    /// Secrets with a prompter to ask.
    pub fn asking(prompter: Option<Arc<dyn Prompter>>) -> Self {
        Self {
            prompter,
            ..Self::default()
        }
    }

    /// Whether there is a person to ask.
    pub fn can_ask(&self) -> bool {
        self.prompter.as_ref().is_some_and(|prompter| prompter.is_there())
    }

    /// Asks the person. `None` if nobody answers in time.
    pub async fn ask(&self, question: &Question) -> Option<SecretString> {
        let prompter = self.prompter.as_ref()?;
        let asked = async {
            let _one_at_a_time = self.asking.lock().await;
            prompter.ask(question).await
        };
        // Includes the wait for earlier questions: the server's LoginGraceTime runs meanwhile.
        timeout(PERSON_TIMEOUT, asked).await.ok()?
    }

    /// The password for a program that changes the user, such as `sudo`: the configured one, or one
    /// that was accepted earlier. `account` is the account whose password it is, if not the one that
    /// logs in. The error says why the configured one can't be read.
    pub async fn known_become_password(
        &self,
        host: &HostConfig,
        account: Option<&str>,
    ) -> Result<Option<SecretString>, String> {
        if let Some(source) = &host.become_password {
            let password = source.read().await;
            let password =
                password.map_err(|error| format!("become_password can't be read: {error}"))?;
            // A second line would be read by the command.
            let line = password.expose_secret().lines().next().unwrap_or_default();
            return Ok(Some(line.into()));
        }
        let key = (host.clone(), account.map(str::to_owned));
        Ok(lock(&self.become_passwords).get(&key).cloned())
    }

    /// Asks a person for the password. The error says why there is none.
    pub async fn ask_become_password(
        &self,
        host: &HostConfig,
        account: Option<&str>,
        program: &str,
    ) -> Result<SecretString, String> {
        let account = account.unwrap_or(&host.user);
        let question = Question {
            host: host.name.clone(),
            text: format!("password of {account} for {program}: "),
            echo: false,
        };
        self.ask(&question)
            .await
            .ok_or_else(|| "none is configured and no person gave one".to_owned())
    }

    /// Keeps a password that a program accepted, or forgets one that it refused.
    pub fn keep_become_password(
        &self,
        host: &HostConfig,
        account: Option<&str>,
        password: Option<SecretString>,
    ) {
        let key = (host.clone(), account.map(str::to_owned));
        match password {
            Some(password) => lock(&self.become_passwords).insert(key, password),
            None => lock(&self.become_passwords).remove(&key),
        };
    }

    pub(super) fn key(&self, file: &Path) -> Option<Arc<PrivateKey>> {
        lock(&self.keys).get(file).cloned()
    }

    pub(super) fn keep_key(&self, file: &Path, key: Arc<PrivateKey>) {
        lock(&self.keys).insert(file.to_owned(), key);
    }

    pub(super) fn password(&self, host: &HostConfig) -> Option<SecretString> {
        lock(&self.passwords).get(host).cloned()
    }

    pub(super) fn keep_password(&self, host: &HostConfig, password: Option<SecretString>) {
        match password {
            Some(password) => lock(&self.passwords).insert(host.clone(), password),
            None => lock(&self.passwords).remove(host),
        };
    }
}
