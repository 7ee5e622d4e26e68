//! The connection to the NATS of a cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cluster_config::ClusterConfig;
use super::error::Error;
use sshjobs_nats::{Nats, NatsLogin, NatsOptions, NatsStore, NatsTls};
use sshjobs_ssh::SecretSource;
use sshjobs_store::{ClusterStatus, CopyReport, KeptHead, SharedText, StateDir, Store, StoreError};

/// Pause between two attempts to reach NATS at the start.
const NATS_PAUSE: Duration = Duration::from_secs(2);

/// A cluster: a connection to its NATS. A cheap handle.
#[derive(Clone, Debug)]
pub struct Cluster {
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

async fn read_secret(source: &SecretSource) -> Result<secrecy::SecretString, String> {
    source.read().await.map_err(|error| format!("the secret for NATS: {error}"))
}

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
