use std::path::PathBuf;
use std::sync::Arc;

use super::{Code, Error, Service};
use crate::runner::{SpawnError, chain};
use crate::ssh::{Connector, PresentedKey, Secrets, TrustError, Verdict};

/// The key that a host presents to whoever asks; see [`Service::host_key`].
pub struct HostKey {
    presented: Arc<PresentedKey>,
    /// Where the host was found: address and port.
    pub address: String,
    /// Type and SHA-256 fingerprint of the key.
    pub fingerprint: String,
    /// The fingerprint as a picture.
    pub randomart: String,
    /// known_hosts lists the host with this key already.
    pub is_known: bool,
}

impl Service {
    /// Asks a host for its key, without logging in. A key that known_hosts speaks against, because it lists another one or
    /// marks this one as revoked, is an error. Jump hosts on the way must be known.
    pub async fn host_key(&self, host: &str) -> Result<HostKey, Error> {
        self.hosts.check(host).await?;
        let failed = |error| Error::from(SpawnError::Connect(Arc::new(error))).about(host);
        let config = self.hosts.resolve(host).await.map_err(failed)?;
        let presented = Connector::asking(Secrets::asking(self.prompter.clone()))
            .look_at_key(&config)
            .await
            .map_err(failed)?;
        Ok(HostKey {
            address: format!("{} port {}", config.address, config.port),
            fingerprint: presented.fingerprint(),
            randomart: presented.randomart(),
            is_known: presented.verdict == Verdict::Known,
            presented: Arc::new(presented),
        })
    }

    /// Writes a host's key into its first known_hosts file, and returns which one that is. Whoever calls this has compared
    /// the fingerprint with the host's own.
    pub async fn trust(&self, key: &HostKey) -> Result<PathBuf, Error> {
        Arc::clone(&key.presented).trust().await.map_err(|error| match error {
            TrustError::HostKey(error) => Error::from(SpawnError::Connect(Arc::new(error.into()))),
            error @ (TrustError::NoFile(_) | TrustError::Unwritable { .. }) => {
                Error::new(Code::Io, chain(&error), "set UserKnownHostsFile to a file that you may write")
            }
        })
    }
}
