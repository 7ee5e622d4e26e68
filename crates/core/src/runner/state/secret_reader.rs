use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Reads secrets of the configuration by their names.
pub trait SecretReader: Send + Sync {
    /// The value of a secret.
    ///
    /// # Errors
    /// Why there is none, in words and without any of it.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SecretString, String>>;
}
