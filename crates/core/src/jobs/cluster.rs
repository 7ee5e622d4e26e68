//! The configuration of a cluster, and the connection to its NATS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::error::Error;
#[cfg(feature = "cluster")]
use sshjobs_nats::{Nats, NatsLogin, NatsOptions, NatsStore, NatsTls};
use sshjobs_ssh::SecretSource;
#[cfg(feature = "cluster")]
use sshjobs_store::StateDir;
use sshjobs_store::{ClusterStatus, CopyReport, KeptHead, SharedText, Store, StoreError};

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
/// Pause between two attempts to reach NATS at the start.
const NATS_PAUSE: Duration = Duration::from_secs(2);
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

/// A cluster: a connection to its NATS. A cheap handle.
#[derive(Clone, Debug)]
pub struct Cluster {
    #[cfg(feature = "cluster")]
    pub(super) nats: Nats,
}

impl Cluster {
    /// Like [`connect`](Self::connect), but waits while no server of NATS can be reached: after a power failure, machines start
    /// in any order. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Store`] if NATS refuses the login.
    pub async fn connect_when_there(config: &ClusterConfig) -> Result<Self, Error> {
        loop {
            match Self::connect(config).await {
                Err(Error::Store(error @ StoreError::NatsAway(_))) => {
                    tracing::warn!(%error, "waiting for NATS");
                    tokio::time::sleep(NATS_PAUSE).await;
                }
                connected => return connected,
            }
        }
    }
}

#[cfg(not(feature = "cluster"))]
impl Cluster {
    /// Always an error: this program was built without the feature `cluster`.
    ///
    /// # Errors
    /// [`Error::Store`].
    #[expect(clippy::unused_async, reason = "the same as with the feature")]
    pub async fn connect(_config: &ClusterConfig) -> Result<Self, Error> {
        let why = "this sshjobs was built without the feature `cluster`".to_owned();
        Err(Error::Store(StoreError::Records(why)))
    }

    /// Always an error.
    ///
    /// # Errors
    /// [`Error::Store`].
    #[expect(clippy::unused_async, reason = "the same as with the feature")]
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        Err(Error::Store(StoreError::Records(
            "there is no cluster".to_owned(),
        )))
    }

    /// Always an error.
    ///
    /// # Errors
    /// [`Error::Store`].
    #[expect(clippy::unused_async, reason = "the same as with the feature")]
    pub async fn import(
        &self,
        _state_dir: PathBuf,
        _tell: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Result<CopyReport, Error> {
        Err(Error::Store(StoreError::Records(
            "there is no cluster".to_owned(),
        )))
    }

    /// Always an error.
    ///
    /// # Errors
    /// [`Error::Store`].
    #[expect(clippy::unused_async, reason = "the same as with the feature")]
    pub async fn audit_heads(&self, _log: Option<String>) -> Result<Vec<KeptHead>, Error> {
        Err(Error::Store(StoreError::Records(
            "there is no cluster".to_owned(),
        )))
    }

    /// Always an error.
    #[expect(clippy::unused_self, reason = "the same as with the feature")]
    pub(super) fn open_store(&self, _process: &str) -> Result<Arc<dyn Store>, StoreError> {
        Err(StoreError::Records("there is no cluster".to_owned()))
    }

    /// The text with the list of tokens.
    ///
    /// # Errors
    /// Always: there is no cluster without the feature.
    pub fn tokens(&self) -> Result<Box<dyn SharedText>, StoreError> {
        Err(StoreError::Records("there is no cluster".to_owned()))
    }
}

#[cfg(feature = "cluster")]
impl Cluster {
    /// Connects to the cluster's NATS, at most for ten seconds.
    ///
    /// # Errors
    /// [`Error::Store`] if NATS can't be reached or refuses the login.
    pub async fn connect(config: &ClusterConfig) -> Result<Self, Error> {
        let options = options(config).await.map_err(|why| Error::Store(StoreError::Nats(why)))?;
        let connecting = tokio::task::spawn_blocking(move || Nats::connect(&options)).await;
        let nats = connecting.expect("connecting does not panic")?;
        Ok(Self { nats })
    }

    /// Enters the cluster as a replica. Blocking.
    pub(super) fn open_store(&self, process: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(NatsStore::open(&self.nats, process)?))
    }

    /// The state of the cluster.
    ///
    /// # Errors
    /// [`Error::Store`] if NATS does not answer, or no replica has ever been there.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let nats = self.nats.clone();
        let reading = tokio::task::spawn_blocking(move || nats.status()).await;
        Ok(reading.expect("reading the status does not panic")?)
    }

    /// Copies all jobs of a state directory, and compares the copies. Calls `tell` with the number of
    /// jobs done and of all jobs.
    ///
    /// # Errors
    /// [`Error::Store`] if the state directory or NATS can't be used, or a copy differs.
    pub async fn import(
        &self,
        state_dir: PathBuf,
        tell: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Result<CopyReport, Error> {
        let nats = self.nats.clone();
        let copying = tokio::task::spawn_blocking(move || {
            let source = StateDir::open(&state_dir, "sshjobs store copy")?;
            nats.import(&source, &tell)
        });
        Ok(copying.await.expect("a copy does not panic")?)
    }

    /// The heads of an audit log that the cluster keeps, the oldest first, or without a log the newest of
    /// each.
    ///
    /// # Errors
    /// [`Error::Store`] if NATS does not answer.
    pub async fn audit_heads(&self, log: Option<String>) -> Result<Vec<KeptHead>, Error> {
        let nats = self.nats.clone();
        let reading = tokio::task::spawn_blocking(move || nats.audit_heads(log.as_deref()));
        Ok(reading.await.expect("reading heads does not panic")?)
    }

    /// The text with the list of tokens. Blocking.
    ///
    /// # Errors
    /// [`StoreError::Nats`].
    pub fn tokens(&self) -> Result<Box<dyn SharedText>, StoreError> {
        Ok(Box::new(self.nats.shared_text("tokens")?))
    }
}

#[cfg(feature = "cluster")]
async fn read_secret(source: &SecretSource) -> Result<secrecy::SecretString, String> {
    source.read().await.map_err(|error| format!("the secret for NATS: {error}"))
}

#[cfg(feature = "cluster")]
async fn options(config: &ClusterConfig) -> Result<NatsOptions, String> {
    let login = if let Some(file) = &config.credentials_file {
        NatsLogin::Credentials(file.clone())
    } else if let (Some(user), Some(password)) = (&config.user, &config.password) {
        NatsLogin::Password {
            user: user.clone(),
            password: read_secret(password).await?,
        }
    } else if let Some(token) = &config.token {
        NatsLogin::Token(read_secret(token).await?)
    } else {
        NatsLogin::None
    };
    let servers = config.servers()?;
    let is_required = servers.iter().any(|url| url.starts_with("tls://"));
    Ok(NatsOptions {
        servers,
        prefix: config.prefix.clone(),
        login,
        tls: NatsTls {
            authorities: config.ca_file.clone(),
            certificate: config.certificate_file.clone().zip(config.key_file.clone()),
            is_required,
        },
        copies: config.copies,
        lease: config.lease(),
    })
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
