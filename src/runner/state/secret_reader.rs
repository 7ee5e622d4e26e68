use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Reads secrets of the configuration by their names.
pub trait SecretReader: Send + Sync {
    /// The value of a secret. `None` if it is not configured or can't be read.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<SecretString>>;
}
