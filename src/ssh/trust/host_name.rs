use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::ssh::HostConfig;

/// The name under which a host's key is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// What an entry must match: `host`, or `[host]:port` off port 22. Lower case.
    pub(super) exact: String,
    /// The bare name, which ssh also accepts off port 22 when nothing else is listed.
    pub(super) bare: Option<String>,
}

impl HostName {
    /// The name of `address` at `port`.
    pub fn new(address: &str, port: u16) -> Self {
        let bare = address.to_ascii_lowercase();
        match port {
            22 => Self { exact: bare, bare: None },
            _ => Self { exact: format!("[{bare}]:{port}"), bare: Some(bare) },
        }
    }

    /// A HostKeyAlias: looked up as it is, whatever the port.
    pub fn alias(alias: &str) -> Self {
        Self { exact: alias.to_ascii_lowercase(), bare: None }
    }

    /// The name of a configured host.
    pub fn of(host: &HostConfig) -> Self {
        match &host.host_key_alias {
            Some(alias) => Self::alias(alias),
            None => Self::new(&host.address, host.port),
        }
    }

    /// As it would be written into known_hosts.
    pub fn as_str(&self) -> &str {
        &self.exact
    }

    /// The same, hashed with a random salt (HashKnownHosts), so that the file does not tell where its owner goes.
    pub fn hashed(&self) -> String {
        let salt: [u8; 20] = rand::random();
        let mut mac = hmac(&salt);
        mac.update(self.exact.as_bytes());
        let hash = mac.finalize().into_bytes();
        format!("|1|{}|{}", BASE64_STANDARD.encode(salt), BASE64_STANDARD.encode(hash))
    }

    /// The name that a host certificate must be for: without the port.
    pub fn principal(&self) -> &str {
        self.bare.as_deref().unwrap_or(&self.exact)
    }
}

/// How known_hosts hashes names.
pub(super) fn hmac(salt: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(salt).expect("HMAC takes a key of any length")
}
