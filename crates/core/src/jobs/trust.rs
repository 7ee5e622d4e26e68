use std::path::PathBuf;
use std::sync::Arc;

use super::error::Error;
use super::jobs::Jobs;
use sshjobs_policy::Verb;
use sshjobs_ssh::{PresentedKey, Verdict};

/// The key that a host presents; see [`Jobs::host_key`].
pub struct HostKey {
    presented: Arc<PresentedKey>,
    /// Address and port of the host.
    pub address: String,
    /// Type and SHA-256 fingerprint of the key.
    pub fingerprint: String,
    /// The fingerprint as a picture.
    pub randomart: String,
    /// Whether known_hosts lists the host with this key already.
    pub is_known: bool,
}

impl Jobs {
    /// Asks a host for its key without logging in. Its jump hosts must be known.
    ///
    /// # Errors
    /// [`Error::Connect`], also for a key that conflicts with known_hosts, which lists another one
    /// or marks this one as revoked.
    pub async fn host_key(&self, host: &str) -> Result<HostKey, Error> {
        let permit = self.door.admission.admit_connection(Verb::Trust, host).await?;
        let presented = self.door.inside.hosts.look_at_key(permit.host()).await;
        let presented = presented.map_err(|error| Error::Connect {
            host: host.to_owned(),
            source: Arc::new(error),
        })?;
        Ok(HostKey {
            address: format!("{} port {}", presented.host.address, presented.host.port),
            fingerprint: presented.fingerprint(),
            randomart: presented.randomart(),
            is_known: presented.verdict == Verdict::Known,
            presented: Arc::new(presented),
        })
    }

    /// Writes a host's key to its first known_hosts file and returns that file. The caller must
    /// have compared the fingerprint with the host's own.
    ///
    /// # Errors
    /// [`Error::Trust`] if known_hosts conflicts with the key by now, or can't be written.
    pub async fn trust(&self, key: &HostKey) -> Result<PathBuf, Error> {
        // Checked again: the key may come from a handle with other rights.
        let _permit = self.door.admission.admit_trust(&key.presented.host.name).await?;
        Arc::clone(&key.presented)
            .trust()
            .await
            .map_err(|error| Error::Trust(Arc::new(error)))
    }
}
