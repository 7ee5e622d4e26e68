//! How NATS is reached, and the names of everything that is kept there.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

/// How a cluster's NATS is reached.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// URLs of servers, such as `nats://10.0.0.1:4222`. The client learns of the others from them.
    pub servers: Vec<String>,
    /// Prefix of all names in NATS, so that several clusters can share it. Letters, digits, `_`
    /// and `-`.
    pub prefix: String,
    /// How this process proves who it is.
    pub login: NatsLogin,
    /// Files for TLS.
    pub tls: NatsTls,
    /// Number of NATS servers that keep a copy of everything. `None` chooses 3 in a NATS cluster,
    /// and 1 otherwise.
    pub copies: Option<usize>,
    /// Time after which a replica that does not answer loses its hosts. Whole seconds, at least 3.
    pub lease: Duration,
}

/// How a process proves to NATS who it is.
#[derive(Clone, Debug, Default)]
pub enum NatsLogin {
    /// NATS asks for nothing.
    #[default]
    None,
    /// A credentials file, as `nsc` writes it.
    Credentials(PathBuf),
    /// A user with a password.
    Password {
        /// The user's name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A token.
    Token(SecretString),
}

/// PEM files for TLS to NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// Certificates of the authorities that sign the servers' certificates, if not the system's.
    pub authorities: Option<PathBuf>,
    /// The certificate with which this process logs in, and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether TLS is required even if the URL and the server don't ask for it.
    pub is_required: bool,
}

/// Prefix of all names in NATS, unless another is configured.
pub const NATS_PREFIX: &str = "sshjobs";
/// Lifetime of a lease, unless another is configured.
pub const NATS_LEASE: Duration = Duration::from_secs(6);

/// Key of the shared secret in the bucket of settings.
pub(super) const SECRET: &str = "secret";

impl NatsOptions {
    /// Options for servers that ask for nothing.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            prefix: NATS_PREFIX.to_owned(),
            login: NatsLogin::None,
            tls: NatsTls::default(),
            copies: None,
            lease: NATS_LEASE,
        }
    }
}

/// Encodes any text as one token of a NATS subject, which is also a valid key of a bucket: bytes
/// other than ASCII letters, digits, `-` and `_` become `=` and two hexadecimal digits.
pub(super) fn subject_token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            token.push(char::from(byte));
        } else {
            token.push_str(&format!("={byte:02x}"));
        }
    }
    if token.is_empty() {
        // An empty token is not allowed. No text is encoded as a single `=`.
        token.push('=');
    }
    token
}

/// The text of a [token](subject_token). `None` if it is not one.
pub(super) fn token_text(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'=' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_one_token_and_comes_back(text in ".*") {
            let token = subject_token(&text);

            prop_assert!(!token.is_empty());
            prop_assert!(!token.contains(['.', '*', '>', ' ']));
            prop_assert_eq!(token_text(&token), Some(text));
        }
    }

    #[test]
    fn a_job_id_stays_readable() {
        assert_eq!(subject_token("web1.eu-7f3k9q2m"), "web1=2eeu-7f3k9q2m");
        assert_eq!(token_text("=2"), None);
    }
}
