//! The handle of a connection to NATS.

use std::sync::Arc;
use std::time::Duration;

use super::audit_heads::AuditHeads;
use super::connection::{NatsConnection, failed};
use super::import::Import;
use super::options::NatsOptions;
use super::shared_text::NatsText;
use super::status::read_status;
use sshjobs_store::{ClusterStatus, CopyReport, KeptHead, StateDir, StoreError};

/// A connection to NATS. A cheap handle: clones share it.
#[derive(Clone)]
pub struct Nats(pub(super) Arc<NatsConnection>);

impl Nats {
    /// Connects. Blocks the thread, at most for ten seconds.
    ///
    /// # Errors
    /// [`StoreError::NatsAway`] if NATS can't be reached, [`StoreError::Nats`] if it refuses the login.
    pub fn connect(options: &NatsOptions) -> Result<Self, StoreError> {
        NatsConnection::open(options).map(|connection| Self(Arc::new(connection)))
    }

    /// A text that all replicas share. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreError::Nats`].
    pub fn shared_text(&self, name: &'static str) -> Result<NatsText, StoreError> {
        NatsText::open(&self.0, name)
    }

    /// The heads of an audit log that the cluster keeps, the oldest first, or without a log the newest of
    /// each. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreError::Nats`].
    pub fn audit_heads(&self, log: Option<&str>) -> Result<Vec<KeptHead>, StoreError> {
        self.0.wait(async {
            match AuditHeads::existing(&self.0).await? {
                Some(heads) => heads.read(log).await,
                None => Ok(Vec::new()),
            }
        })
    }

    /// Copies all jobs of a state directory, and compares the copies. Calls `tell` with the number of
    /// jobs done and of all jobs. Blocks the thread.
    ///
    /// # Errors
    /// If the state directory or NATS can't be used, or a copy differs. Jobs that are in the cluster by
    /// then stay there.
    pub fn import(
        &self,
        source: &StateDir,
        tell: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<CopyReport, StoreError> {
        self.0.wait(Import::open(source, &self.0))?.run(tell)
    }

    /// The state of the cluster, also from a process that is no replica. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreError::Nats`] if NATS does not answer, or no replica has ever been there.
    pub fn status(&self) -> Result<ClusterStatus, StoreError> {
        self.0.wait(async {
            let reading = tokio::time::timeout(STATUS, read_status(&self.0)).await;
            reading.unwrap_or_else(|_| Err(failed(format!("no answer within {STATUS:?}"))))
        })
    }
}

/// Time limit for reading the state of a cluster.
const STATUS: Duration = Duration::from_secs(20);

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nats").finish_non_exhaustive()
    }
}
