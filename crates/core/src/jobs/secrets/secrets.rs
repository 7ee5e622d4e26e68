//! The secrets of the configuration.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use super::config::SecretConfig;
use super::refusal::SecretRefusal;
use crate::runner::SecretReader;
use sshjobs_output::scrub::HiddenSecret;

/// Maximum bytes of a secret.
const LONGEST_SECRET: usize = 64 << 10;

/// The secrets of the configuration, by name.
pub(crate) struct ConfiguredSecrets(BTreeMap<String, SecretConfig>);

impl ConfiguredSecrets {
    pub(crate) fn new(secrets: BTreeMap<String, SecretConfig>) -> Self {
        Self(secrets)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&SecretConfig> {
        self.0.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &SecretConfig)> {
        self.0.iter()
    }

    /// Reads a secret. Whether the caller may use it must be checked before.
    ///
    /// # Errors
    /// Why it has no usable value.
    pub(crate) async fn read_value(&self, name: &str) -> Result<SecretValue, SecretRefusal> {
        let secret = self.get(name).expect("a secret that may be used is configured");
        let read = secret.source.read_whole().await;
        let value = read.map_err(|error| {
            // A caller does not learn where it comes from.
            tracing::error!(secret = name, %error, "a secret can't be read");
            SecretRefusal::Unreadable(name.to_owned())
        })?;
        let length = value.expose_secret().len();
        if length == 0 {
            return Err(SecretRefusal::Empty(name.to_owned()));
        }
        if length > LONGEST_SECRET {
            return Err(SecretRefusal::TooLong(name.to_owned()));
        }
        if value.expose_secret().contains('\0') {
            return Err(SecretRefusal::Nul(name.to_owned()));
        }
        if secret.scrub && !HiddenSecret::is_long_enough(&value) {
            return Err(SecretRefusal::TooShort(name.to_owned()));
        }
        let hidden = secret.scrub.then(|| HiddenSecret::new(name, value.clone()));
        Ok(SecretValue { value, hidden })
    }
}

/// The value of a secret.
pub(crate) struct SecretValue {
    pub(crate) value: SecretString,
    /// Set if output must not show it.
    pub(crate) hidden: Option<HiddenSecret>,
}

impl SecretReader for ConfiguredSecrets {
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SecretString, String>> {
        async {
            let secret = self.get(name).ok_or("it is not configured")?;
            secret.source.read_whole().await.map_err(|error| error.to_string())
        }
        .boxed()
    }
}
