//! Records of jobs in a bucket, and the idempotency keys in another.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_nats::jetstream::kv;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{NatsConnection, failed};
use super::entries;
use super::events::EventQueue;
use super::options::{subject_token, token_text};
use super::race::{RACE_PAUSE, lost_race};
use super::record_index::RecordIndex;
use super::record_text::{key_of, read, write};
use super::tombstones::Tombstones;
use sshjobs_base::lock::lock;
use sshjobs_job::{JobId, wall_now};
use sshjobs_store::{Filter, Record, StoreError, StoreEvent};

/// Records of jobs. Every write compares the revision, so that no change of another replica is
/// lost.
pub(super) struct RecordBucket {
    jobs: kv::Store,
    keys: kv::Store,
    tombstones: Tombstones,
    index: Mutex<RecordIndex>,
    /// Revisions of this replica's own records.
    revisions: Mutex<HashMap<JobId, u64>>,
    /// Receives removed records.
    events: EventQueue,
    /// True once the index has all records that were there when it was opened.
    is_complete: watch::Sender<bool>,
}

/// Maximum calls to NATS at once.
const AT_ONCE: usize = 64;
/// Maximum looks, [`RACE_PAUSE`] apart, for a write that NATS is about to store.
const MOST_LOOKS: usize = 100;

impl RecordBucket {
    pub(super) async fn open(
        connection: &Arc<NatsConnection>,
        events: EventQueue,
    ) -> Result<Self, StoreError> {
        let none = std::time::Duration::ZERO;
        Ok(Self {
            jobs: connection.bucket("jobs", none).await?,
            keys: connection.bucket("keys", none).await?,
            tombstones: Tombstones::open(connection).await?,
            index: Mutex::default(),
            revisions: Mutex::default(),
            events,
            is_complete: watch::Sender::new(false),
        })
    }

    /// Keeps the index up to date until it is dropped.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            if let Err(error) = self.follow_once().await {
                tracing::debug!(%error, "the records of other replicas can't be followed");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn follow_once(&self) -> Result<(), StoreError> {
        // Those that are not in the bucket any more were removed while nothing was followed.
        let mut unseen: HashSet<JobId> = lock(&self.index).ids().cloned().collect();
        let mut changes = self.jobs.watch_with_history(">").await.map_err(failed)?;
        if self.jobs.status().await.map_err(failed)?.values() == 0 {
            // An empty bucket sends nothing that could say that it was read.
            self.note_complete(&mut unseen).await?;
        }
        while let Some(entry) = changes.try_next().await.map_err(failed)? {
            self.note(&entry);
            if let Some(id) = token_text(&entry.key) {
                unseen.remove(&JobId::from(id.as_str()));
            }
            if entry.seen_current {
                self.note_complete(&mut unseen).await?;
            }
        }
        Ok(())
    }

    /// Notes that the whole bucket was read. Jobs that were not in it were removed.
    async fn note_complete(&self, unseen: &mut HashSet<JobId>) -> Result<(), StoreError> {
        self.is_complete.send_replace(true);
        for id in unseen.drain() {
            // The server that was read may lack the newest records.
            if self.get_exactly(&id).await?.is_none() {
                lock(&self.index).note_missing(&id);
                self.events.send(StoreEvent::JobRemoved(id));
            }
        }
        Ok(())
    }

    fn note(&self, entry: &kv::Entry) {
        match entry.operation {
            kv::Operation::Put => {
                if let Ok(record) = read(&entry.value) {
                    lock(&self.index).note(&record, entry.revision);
                }
            }
            kv::Operation::Delete | kv::Operation::Purge => {
                if let Some(id) = token_text(&entry.key) {
                    let id = JobId::from(id.as_str());
                    lock(&self.index).note_removed(&id, entry.revision, wall_now());
                    self.events.send(StoreEvent::JobRemoved(id));
                }
            }
        }
    }

    /// Resolves once the index has all records that were there when it was opened.
    pub(super) async fn complete(&self) {
        // The sender is in this value, so it is not dropped meanwhile.
        self.is_complete.subscribe().wait_for(|is_complete| *is_complete).await.ok();
    }

    /// Registers a job. Returns the job that has its key already, if there is one.
    pub(super) async fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        // Before the key: a replica that dies in between leaves a job without a key, and not a key
        // without a job.
        let revision = self.create(record).await?;
        if let Some(key) = key_of(record)
            && let Some(earlier) = self.claim_key(&key, &record.id).await?
        {
            self.jobs.purge(job_key(&record.id)).await.map_err(failed)?;
            return Ok(Some(earlier));
        }
        self.note_own(record, revision);
        Ok(None)
    }

    /// Stores a new record. Returns its revision.
    async fn create(&self, record: &Record) -> Result<u64, StoreError> {
        let key = job_key(&record.id);
        let text = write(record)?;
        match self.jobs.create(&key, text.clone().into()).await {
            Ok(revision) => Ok(revision),
            // An earlier attempt may have been stored, although its answer was lost.
            Err(error) if lost_race(&error) => {
                for _ in 0..MOST_LOOKS {
                    sleep(RACE_PAUSE).await;
                    if let Some(stored) = entries::exact(&self.jobs, &key).await? {
                        let is_own = stored.value == text;
                        return is_own.then_some(stored.revision).ok_or_else(|| failed(error));
                    }
                }
                Err(failed(error))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The job that has a key.
    async fn job_of_key(&self, key: &str) -> Result<Option<Record>, StoreError> {
        match entries::recent(&self.keys, key).await? {
            Some(id) => self.get(&JobId::from(&*String::from_utf8_lossy(&id))).await,
            None => Ok(None),
        }
    }

    /// The tombstone of a removed job.
    pub(super) async fn tombstone(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        self.tombstones.get(id).await
    }

    /// The job that has a record's idempotency key, or had it when it was removed.
    pub(super) async fn earlier_job(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        let Some(key) = key_of(record) else { return Ok(None) };
        match self.job_of_key(&key).await? {
            Some(earlier) => Ok(Some(earlier)),
            None => self.tombstones.of_key(&key).await,
        }
    }

    /// Gives a key to a job, or returns the job that has it.
    async fn claim_key(&self, key: &str, id: &JobId) -> Result<Option<Record>, StoreError> {
        let own = bytes::Bytes::copy_from_slice(id.as_str().as_bytes());
        loop {
            match self.keys.create(key, own.clone()).await {
                Ok(_) => return Ok(None),
                Err(error) if lost_race(&error) => sleep(RACE_PAUSE).await,
                Err(error) => return Err(failed(error)),
            }
            // If there is no entry, the key was deleted meanwhile.
            let Some(entry) = entries::exact(&self.keys, key).await? else { continue };
            let holder = JobId::from(&*String::from_utf8_lossy(&entry.value));
            if holder == *id {
                // An earlier attempt was stored, although its answer was lost.
                return Ok(None);
            }
            if let Some(earlier) = self.get_exactly(&holder).await? {
                return Ok(Some(earlier));
            }
            // Its job was removed.
            match self.keys.update(key, own.clone(), entry.revision).await {
                Ok(_) => return Ok(None),
                Err(error) if lost_race(&error) => sleep(RACE_PAUSE).await,
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Revision of a record of this replica.
    pub(super) fn revision(&self, id: &JobId) -> Option<u64> {
        lock(&self.revisions).get(id).copied()
    }

    fn note_own(&self, record: &Record, revision: u64) {
        lock(&self.revisions).insert(record.id.clone(), revision);
        lock(&self.index).note(record, revision);
    }

    /// Updates records of this replica. Leaves out those that another one has claimed or removed.
    pub(super) async fn put(&self, records: &[Record]) -> Result<(), StoreError> {
        let writes = records.iter().map(|record| self.put_one(record));
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn put_one(&self, record: &Record) -> Result<(), StoreError> {
        let known = lock(&self.revisions).get(&record.id).copied();
        let mut revision = known;
        loop {
            let expected = match revision {
                Some(revision) => revision,
                None => match self.entry(&record.id).await? {
                    Some((current, revision)) if current.owner == record.owner => revision,
                    Some(_) | None => {
                        lock(&self.revisions).remove(&record.id);
                        return Ok(());
                    }
                },
            };
            let written = self.jobs.update(job_key(&record.id), write(record)?.into(), expected);
            match written.await {
                Ok(revision) => {
                    self.note_own(record, revision);
                    if record.outcome.is_some() {
                        // It changes rarely from now on.
                        lock(&self.revisions).remove(&record.id);
                    }
                    return Ok(());
                }
                // Another replica has written it, or an earlier write was stored without an answer.
                Err(error) if lost_race(&error) => {
                    sleep(RACE_PAUSE).await;
                    revision = None;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    pub(super) async fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        let value = entries::recent(&self.jobs, &job_key(id)).await?;
        value.map(|value| read(&value)).transpose()
    }

    /// The record as the leader of NATS has it. Other servers may lack the newest records.
    pub(super) async fn get_exactly(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        Ok(self.entry(id).await?.map(|(record, _)| record))
    }

    /// A record and its revision, as the leader of NATS has them.
    async fn entry(&self, id: &JobId) -> Result<Option<(Record, u64)>, StoreError> {
        match entries::exact(&self.jobs, &job_key(id)).await? {
            Some(entry) => Ok(Some((read(&entry.value)?, entry.revision))),
            None => Ok(None),
        }
    }

    /// Records of several jobs, in order. Leaves out those that were removed.
    async fn get_all(&self, ids: Vec<JobId>) -> Result<Vec<Record>, StoreError> {
        let gets = ids.into_iter().map(|id| async move { self.get(&id).await });
        let records: Vec<Option<Record>> =
            stream::iter(gets).buffered(AT_ONCE).try_collect().await?;
        Ok(records.into_iter().flatten().collect())
    }

    pub(super) async fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        let (newest, total) = lock(&self.index).list(filter);
        Ok((self.get_all(newest).await?, total))
    }

    /// Removes a record and its key. Leaves a tombstone.
    pub(super) async fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        if let Some(record) = self.get_exactly(id).await? {
            self.tombstones.put(&record).await?;
        }
        self.withdraw(id).await
    }

    /// Removes a record and its key, which is free then.
    pub(super) async fn withdraw(&self, id: &JobId) -> Result<(), StoreError> {
        if let Some(record) = self.get_exactly(id).await?
            && let Some(key) = key_of(&record)
            && let Some(holder) = entries::exact(&self.keys, &key).await?
            && holder.value == id.as_str().as_bytes()
        {
            // The job's own key, and not that of a later job. Without a marker, which nothing
            // would ever delete.
            let subject = format!("{}{key}", self.keys.prefix);
            self.keys.stream.purge().filter(subject).await.map_err(failed)?;
        }
        lock(&self.revisions).remove(id);
        self.jobs.purge(job_key(id)).await.map_err(failed)?;
        Ok(())
    }

    /// Unfinished records that an owner and a host select, as they are now, without the excluded
    /// jobs.
    pub(super) async fn unfinished(
        &self,
        is_selected: impl Fn(&str, &str) -> bool,
        is_excluded: &dyn Fn(&JobId) -> bool,
    ) -> Result<Vec<Record>, StoreError> {
        let mut ids = lock(&self.index).unfinished(&is_selected);
        // Not under the lock: the caller may take locks of its own.
        ids.retain(|id| !is_excluded(id));
        let mut records = self.get_all(ids).await?;
        // The index may be older than the records.
        records
            .retain(|record| record.outcome.is_none() && is_selected(&record.owner, &record.host));
        Ok(records)
    }

    /// Gives a job to another owner, if it still belongs to the one in `record`. Returns the
    /// revision of the record, or `None` if another replica was faster.
    pub(super) async fn claim(
        &self,
        record: &Record,
        owner: &str,
    ) -> Result<Option<u64>, StoreError> {
        let Some((current, revision)) = self.entry(&record.id).await? else {
            return Ok(None);
        };
        if current.owner != record.owner || current.outcome.is_some() {
            return Ok(None);
        }
        let claimed = Record {
            owner: owner.to_owned(),
            ..current
        };
        match self.jobs.update(job_key(&record.id), write(&claimed)?.into(), revision).await {
            Ok(revision) => {
                self.note_own(&claimed, revision);
                Ok(Some(revision))
            }
            Err(error) if lost_race(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Changes a finished job's record, whichever replica owns it.
    pub(super) async fn change(
        &self,
        id: &JobId,
        change: impl Fn(&mut Record),
    ) -> Result<(), StoreError> {
        while let Some((mut record, revision)) = self.entry(id).await? {
            change(&mut record);
            match self.jobs.update(job_key(id), write(&record)?.into(), revision).await {
                Ok(revision) => {
                    lock(&self.index).note(&record, revision);
                    return Ok(());
                }
                Err(error) if lost_race(&error) => sleep(RACE_PAUSE).await,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    pub(super) fn index(&self) -> sshjobs_base::lock::LockGuard<'_, RecordIndex> {
        lock(&self.index)
    }

    /// Deletes the marker that NATS keeps of a removed record.
    pub(super) async fn delete_marker(&self, id: &JobId) -> Result<(), StoreError> {
        let subject = format!("{}{}", self.jobs.prefix, job_key(id));
        self.jobs.stream.purge().filter(subject).await.map(drop).map_err(failed)
    }
}

/// Pause before records are followed again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

fn job_key(id: &JobId) -> String {
    subject_token(id.as_str())
}
