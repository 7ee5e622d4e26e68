//! Cursors of named readers, in a bucket.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::TryStreamExt;

use tokio::time::sleep;

use super::connection::{NatsConnection, failed};
use super::entries;
use super::options::subject_token;
use super::race::{RACE_PAUSE, lost_race};
use sshjobs_job::{CursorMove, CursorName, JobId, Moved, may_move};
use sshjobs_output::LineNo;
use sshjobs_store::StoreError;

/// Cursors of named readers. Of two moves from the same line only one succeeds, at whichever
/// replicas they arrive.
pub(super) struct CursorBucket(kv::Store);

impl CursorBucket {
    pub(super) async fn open(connection: &Arc<NatsConnection>) -> Result<Self, StoreError> {
        Ok(Self(connection.bucket("cursors", Duration::ZERO).await?))
    }

    pub(super) async fn cursor(
        &self,
        job: &JobId,
        name: &CursorName,
    ) -> Result<LineNo, StoreError> {
        let entry = self.entry(&key(job, name)).await?;
        Ok(entry.map_or(LineNo::START, |(line, _)| line))
    }

    pub(super) async fn move_to(
        &self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        let key = key(job, name);
        loop {
            let entry = self.entry(&key).await?;
            let known = entry.map(|(line, _)| line);
            // Only a new cursor needs room.
            let count = if known.is_none() {
                self.count(job).await?
            } else {
                0
            };
            let moved = may_move(known, step, count);
            if moved != Moved::Done || known == Some(step.to) {
                return Ok(moved);
            }
            let value = step.to.value().to_string().into();
            let written = match entry {
                Some((_, revision)) => self
                    .0
                    .update(&key, value, revision)
                    .await
                    .map_err(|error| (lost_race(&error), failed(error))),
                None => self
                    .0
                    .create(&key, value)
                    .await
                    .map_err(|error| (lost_race(&error), failed(error))),
            };
            match written {
                Ok(_) => return Ok(Moved::Done),
                // Another call has moved it. Whether this one still may is checked again.
                Err((true, _)) => sleep(RACE_PAUSE).await,
                Err((false, error)) => return Err(error),
            }
        }
    }

    /// Sets a cursor, wherever it was.
    pub(super) async fn put(
        &self,
        job: &JobId,
        name: &CursorName,
        line: LineNo,
    ) -> Result<(), StoreError> {
        let value = line.value().to_string().into();
        self.0.put(key(job, name), value).await.map(drop).map_err(failed)
    }

    /// A cursor and its revision.
    async fn entry(&self, key: &str) -> Result<Option<(LineNo, u64)>, StoreError> {
        let Some(entry) = entries::exact(&self.0, key).await? else { return Ok(None) };
        let line = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
        Ok(line.map(|line| (LineNo::new(line), entry.revision)))
    }

    /// Number of cursors of a job.
    async fn count(&self, job: &JobId) -> Result<usize, StoreError> {
        let all = format!("{}{}.>", self.0.prefix, subject_token(job.as_str()));
        let mut subjects = self.0.stream.info_with_subjects(all).await.map_err(failed)?;
        let mut count = 0;
        while subjects.try_next().await.map_err(failed)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Removes all cursors of a job.
    pub(super) async fn remove(&self, job: &JobId) -> Result<(), StoreError> {
        let all = format!("{}{}.>", self.0.prefix, subject_token(job.as_str()));
        self.0.stream.purge().filter(all).await.map(drop).map_err(failed)
    }
}

fn key(job: &JobId, name: &CursorName) -> String {
    let CursorName { caller, reader } = name;
    let [job, caller, reader] = [job.as_str(), caller.as_str(), reader].map(subject_token);
    format!("{job}.{caller}.{reader}")
}
