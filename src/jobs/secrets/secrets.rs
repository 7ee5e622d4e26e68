//! The secrets of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use super::config::SecretConfig;
use super::refusal::SecretRefusal;
use crate::runner::SecretReader;
use crate::scrub::{HiddenSecret, SHORTEST};

/// The secrets of the configuration, by name.
pub(in crate::jobs) struct Secrets(BTreeMap<String, SecretConfig>);

impl Secrets {
    pub(in crate::jobs) fn new(secrets: BTreeMap<String, SecretConfig>) -> Self {
        Self(secrets)
    }

    pub(in crate::jobs) fn get(&self, name: &str) -> Option<&SecretConfig> {
        self.0.get(name)
    }

    pub(in crate::jobs) fn all(&self) -> impl Iterator<Item = (&String, &SecretConfig)> {
        self.0.iter()
    }

    /// Reads a secret. Whether the caller may use it must be checked before.
    pub(in crate::jobs) async fn value(&self, name: &str) -> Result<SecretValue, SecretRefusal> {
        let secret = self.get(name).expect("a secret that may be used is configured");
        let read = secret.source.read_whole().await;
        let value = read.map_err(|source| SecretRefusal::Unreadable {
            name: name.to_owned(),
            source: Arc::new(source),
        })?;
        if value.expose_secret().is_empty() {
            return Err(SecretRefusal::Empty(name.to_owned()));
        }
        if secret.scrub && value.expose_secret().len() < SHORTEST {
            return Err(SecretRefusal::TooShort(name.to_owned()));
        }
        let hidden = secret.scrub.then(|| HiddenSecret::new(name, value.clone()));
        Ok(SecretValue { value, hidden })
    }
}

/// The value of a secret.
pub(in crate::jobs) struct SecretValue {
    pub(in crate::jobs) value: SecretString,
    /// Set if output must not show it.
    pub(in crate::jobs) hidden: Option<HiddenSecret>,
}

impl SecretReader for Secrets {
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<SecretString>> {
        async {
            let source = &self.get(name)?.source;
            source.read_whole().await.ok()
        }
        .boxed()
    }
}
