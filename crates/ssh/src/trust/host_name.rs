use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::HostConfig;

/// The name under which a host's key is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// Name that an entry must match: `host`, or `[host]:port` except for port 22. Lower case.
    pub(super) exact: String,
    /// The bare name, which ssh also accepts for other ports if nothing else is listed.
    pub(super) bare: Option<String>,
}

impl HostName {
    /// The name of `address` at `port`.
    pub fn new(address: &str, port: u16) -> Self {
        let bare = address.to_ascii_lowercase();
        match port {
            22 => Self {
                exact: bare,
                bare: None,
            },
            _ => Self {
                exact: format!("[{bare}]:{port}"),
                bare: Some(bare),
            },
        }
    }

    /// A HostKeyAlias, looked up in lower case and without a port.
    pub fn alias(alias: &str) -> Self {
        Self {
            exact: alias.to_ascii_lowercase(),
            bare: None,
        }
    }

    /// The name of a configured host.
    pub fn of(host: &HostConfig) -> Self {
        match &host.host_key_alias {
            Some(alias) => Self::alias(alias),
            None => Self::new(&host.address, host.port),
        }
    }

    /// The names under which an entry is for the host.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        [Some(&self.exact), self.bare.as_ref()].into_iter().flatten()
    }

    /// In the form used in known_hosts.
    pub fn as_str(&self) -> &str {
        &self.exact
    }

    /// The name hashed with a random salt (HashKnownHosts), so that the file does not reveal which
    /// hosts its owner visits.
    pub fn hashed(&self) -> String {
        let salt: [u8; 20] = rand::random();
        let mut mac = hmac(&salt);
        mac.update(self.exact.as_bytes());
        let hash = mac.finalize().into_bytes();
        format!(
            "|1|{}|{}",
            BASE64_STANDARD.encode(salt),
            BASE64_STANDARD.encode(hash)
        )
    }

    /// The name that a host certificate must contain: without the port.
    pub fn principal(&self) -> &str {
        self.bare.as_deref().unwrap_or(&self.exact)
    }
}

/// The hash of a name in known_hosts.
pub(super) fn hmac(salt: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(salt).expect("HMAC takes a key of any length")
}
