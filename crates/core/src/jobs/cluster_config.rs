//! The configuration of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use sshjobs_ssh::SecretSource;

/// How the NATS of a cluster is reached: the table `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// URLs of NATS servers, separated by commas. `None` without a cluster.
    pub nats: Option<String>,
    /// Prefix of all names in NATS, so that several clusters can share it.
    pub prefix: String,
    /// Number of NATS servers that keep a copy of everything. `None` chooses 3 in a NATS cluster,
    /// and 1 otherwise.
    pub copies: Option<usize>,
    /// Seconds after which a replica that does not answer loses its hosts.
    pub lease_s: u32,
    /// A credentials file of NATS.
    pub credentials_file: Option<PathBuf>,
    /// The user at NATS.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<SecretSource>,
    /// A token of NATS.
    pub token: Option<SecretSource>,
    /// Certificates of the authorities that sign the servers' certificates (PEM).
    pub ca_file: Option<PathBuf>,
    /// The certificate with which this program logs in (PEM).
    pub certificate_file: Option<PathBuf>,
    /// Its private key (PEM).
    pub key_file: Option<PathBuf>,
}

/// Lease of a replica in seconds: at least, by default, and at most.
const LEAST_LEASE: u32 = 3;
const DEFAULT_LEASE: u32 = 6;
const MOST_LEASE: u32 = 300;
/// Maximum copies of a stream (a limit of NATS).
const MOST_COPIES: usize = 5;

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            nats: None,
            prefix: "sshjobs".to_owned(),
            copies: None,
            lease_s: DEFAULT_LEASE,
            credentials_file: None,
            user: None,
            password: None,
            token: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
        }
    }
}

impl ClusterConfig {
    /// The first invalid value, by name, with the reason.
    pub(super) fn validate(&self) -> Option<String> {
        if !(LEAST_LEASE..=MOST_LEASE).contains(&self.lease_s) {
            return Some(format!("lease_s must be {LEAST_LEASE} to {MOST_LEASE}"));
        }
        if self.copies.is_some_and(|copies| !(1..=MOST_COPIES).contains(&copies)) {
            return Some(format!("copies must be 1 to {MOST_COPIES}"));
        }
        let has_other = self
            .prefix
            .contains(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        if self.prefix.is_empty() || has_other {
            return Some("prefix must have only letters, digits, `_` and `-`".to_owned());
        }
        if self.user.is_some() != self.password.is_some() {
            return Some("user and password belong together".to_owned());
        }
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return Some("certificate_file and key_file belong together".to_owned());
        }
        None
    }

    /// URLs of the servers.
    ///
    /// # Errors
    /// If one is not a URL of NATS, or contains a password.
    pub fn servers(&self) -> Result<Vec<String>, String> {
        let urls = self.nats.iter().flat_map(|urls| urls.split(','));
        urls.map(|url| server_url(url.trim())).collect()
    }

    /// Lifetime of a lease.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s.into())
    }
}

fn server_url(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("nats://").or_else(|| url.strip_prefix("tls://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return Err("use URLs such as nats://10.0.0.1:4222, separated by commas".to_owned());
    };
    // A command line is visible to every user of the machine.
    if rest.contains('@') {
        return Err(
            "the URL must not contain a user or password; set `user` and `password`, or \
                    `credentials_file`, in the table [cluster] of the configuration"
                .to_owned(),
        );
    }
    Ok(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_separated_by_commas_and_contain_no_password() {
        let config = |nats: &str| ClusterConfig {
            nats: Some(nats.to_owned()),
            ..ClusterConfig::default()
        };

        let two = config("nats://10.0.0.1:4222, tls://nats.example.com").servers().unwrap();
        assert_eq!(two, ["nats://10.0.0.1:4222", "tls://nats.example.com"]);
        assert!(config("http://10.0.0.1").servers().is_err());
        assert!(config("nats://").servers().is_err());
        let refused = config("nats://me:hunter2@10.0.0.1").servers().unwrap_err();
        assert!(!refused.contains("hunter2"));
    }
}
