//! Serializes secrets in requests of our own client. No other code writes them out.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// Serializes a secret.
pub(super) fn reveal<S: Serializer>(
    secret: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(ExposeSecret::expose_secret).serialize(serializer)
}

/// Serializes the values of variables.
pub(super) fn reveal_values<S: Serializer>(
    variables: &BTreeMap<String, SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(variables.iter().map(|(name, value)| (name, value.expose_secret())))
}
