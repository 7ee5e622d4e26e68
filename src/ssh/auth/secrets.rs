use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use russh::keys::PrivateKey;
use secrecy::SecretString;
use tokio::time::timeout;

use super::prompter::PERSON_TIMEOUT;
use super::{Prompter, Question};
use crate::lock::lock;
use crate::ssh::HostConfig;

/// Keys and passwords that succeeded, and the prompter for others. A secret that succeeded is not
/// asked for again.
#[derive(Default)]
pub struct Secrets {
    prompter: Option<Arc<dyn Prompter>>,
    keys: Mutex<HashMap<PathBuf, Arc<PrivateKey>>>,
    // By all settings, so that a changed address or account never gets an old password.
    passwords: Mutex<HashMap<HostConfig, SecretString>>,
    /// Allows one question at a time.
    asking: tokio::sync::Mutex<()>,
}

impl Secrets {
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

    pub(super) async fn ask(&self, question: &Question) -> Option<SecretString> {
        let prompter = self.prompter.as_ref()?;
        let asked = async {
            let _one_at_a_time = self.asking.lock().await;
            prompter.ask(question).await
        };
        // Includes the wait for earlier questions: the server's LoginGraceTime runs meanwhile.
        timeout(PERSON_TIMEOUT, asked).await.ok()?
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
