//! Cancelled tasks of MCP clients, which every replica knows.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::connection::{NatsConnection, failed};
use super::entries;
use sshjobs_store::StoreError;

/// Cancelled tasks, by the hash of their id.
pub(super) struct CancelledTasks(kv::Store);

/// Time for which a cancellation is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3600);

impl CancelledTasks {
    pub(super) async fn open(connection: &Arc<NatsConnection>) -> Result<Self, StoreError> {
        Ok(Self(connection.bucket("cancelled_tasks", KEPT).await?))
    }

    pub(super) async fn add(&self, task: &str) -> Result<(), StoreError> {
        let added = self.0.put(key(task), bytes::Bytes::new()).await;
        added.map(drop).map_err(failed)
    }

    pub(super) async fn has(&self, task: &str) -> Result<bool, StoreError> {
        Ok(entries::recent(&self.0, &key(task)).await?.is_some())
    }
}

/// An id may be longer than NATS allows for a key.
fn key(task: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(task))
}
