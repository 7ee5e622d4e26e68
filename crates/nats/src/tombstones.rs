//! Tombstones: records of removed jobs, kept for a day.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv;

use super::connection::{NatsConnection, failed};
use super::entries;
use super::options::subject_token;
use super::record_text::{key_of, read, write};
use sshjobs_job::JobId;
use sshjobs_store::{Record, StoreError};

/// Records of removed jobs and their idempotency keys, so that every replica answers that such a job
/// has expired, and none runs a command again that was asked for with an old key.
pub(super) struct Tombstones(kv::Store);

/// Time for which they are kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

impl Tombstones {
    pub(super) async fn open(connection: &Arc<NatsConnection>) -> Result<Self, StoreError> {
        Ok(Self(connection.bucket("tombstones", KEPT).await?))
    }

    /// Keeps a record that is about to be removed.
    pub(super) async fn put(&self, record: &Record) -> Result<(), StoreError> {
        self.0.put(job_key(&record.id), write(record)?.into()).await.map_err(failed)?;
        if let Some(key) = key_of(record) {
            let id = bytes::Bytes::copy_from_slice(record.id.as_str().as_bytes());
            self.0.put(format!("key.{key}"), id).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The record of a job that was removed.
    pub(super) async fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        let value = entries::recent(&self.0, &job_key(id)).await?;
        value.map(|value| read(&value)).transpose()
    }

    /// The record of a removed job that had a key.
    pub(super) async fn of_key(&self, key: &str) -> Result<Option<Record>, StoreError> {
        match entries::recent(&self.0, &format!("key.{key}")).await? {
            Some(id) => self.get(&JobId::from(&*String::from_utf8_lossy(&id))).await,
            None => Ok(None),
        }
    }
}

fn job_key(id: &JobId) -> String {
    format!("job.{}", subject_token(id.as_str()))
}
