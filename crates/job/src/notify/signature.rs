//! Signatures of notifications, as Standard Webhooks 1.0 defines them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretBox, SecretString};
use sha2::Sha256;

/// A key that a receiver shares.
#[derive(Debug)]
pub struct ReceiverKey(SecretBox<[u8]>);

/// A key that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSigningKey {
    /// It has the prefix of keys in base64, but is not base64.
    #[error("the key begins with whsec_, and the rest is not base64")]
    NotBase64,
    /// It is too short to be a secret.
    #[error("the key has {0} bytes; it needs at least 24")]
    TooShort(usize),
}

/// Prefix of keys that are written in base64.
const PREFIX: &str = "whsec_";
/// Least bytes of a key, as the specification requires.
const LEAST_BYTES: usize = 24;

impl ReceiverKey {
    /// A key as text: `whsec_` and base64, or any other text, whose bytes are the key.
    ///
    /// # Errors
    /// [`BadSigningKey`].
    pub fn parse(text: &SecretString) -> Result<Self, BadSigningKey> {
        let text = text.expose_secret().trim();
        let bytes = match text.strip_prefix(PREFIX) {
            Some(base64) => Zeroizing::new(
                BASE64_STANDARD.decode(base64).map_err(|_| BadSigningKey::NotBase64)?,
            ),
            None => Zeroizing::new(text.as_bytes().to_vec()),
        };
        if bytes.len() < LEAST_BYTES {
            return Err(BadSigningKey::TooShort(bytes.len()));
        }
        Ok(Self(bytes.to_vec().into_boxed_slice().into()))
    }

    /// The header `webhook-signature` of a message that is sent at a time, in seconds since the Unix
    /// epoch.
    pub fn sign(&self, id: &str, sent_at: u64, body: &[u8]) -> String {
        let mut hash = Hmac::<Sha256>::new_from_slice(self.0.expose_secret())
            .expect("HMAC takes keys of any length");
        hash.update(format!("{id}.{sent_at}.").as_bytes());
        hash.update(body);
        format!(
            "v1,{}",
            BASE64_STANDARD.encode(hash.finalize().into_bytes())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_has_this_signature() {
        let key = ReceiverKey::parse(&"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()).unwrap();

        let signature = key.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            b"{\"test\": 2432232314}",
        );

        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_short_or_broken_key_is_refused() {
        let parse = |text: &str| ReceiverKey::parse(&text.into()).err();

        assert_eq!(parse("hunter2"), Some(BadSigningKey::TooShort(7)));
        assert_eq!(parse("whsec_%%%"), Some(BadSigningKey::NotBase64));
        assert_eq!(parse("a text of more than 24 bytes"), None);
    }
}
