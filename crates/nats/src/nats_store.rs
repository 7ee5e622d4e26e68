//! The store of a cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::audit_heads::AuditHeads;
use super::cancelled_tasks::CancelledTasks;
use super::chunks::ChunkPosition;
use super::connection::{NatsConnection, failed};
use super::cursors::CursorBucket;
use super::entries;
use super::events::EventQueue;
use super::job_output::JobOutput;
use super::leases::{Holder, Leases, Own};
use super::nats::Nats;
use super::options::SECRET;
use super::output_streams::{AnsweringServer, NewChunk, OutputStreams, Stored, fenced};
use super::records::RecordBucket;
use super::replicas::Replicas;
use super::shared_text::NatsText;
use sshjobs_job::{CursorMove, CursorName, JobId, Moved};
use sshjobs_output::{LineNo, Timestamp};
use sshjobs_store::Media;
use sshjobs_store::{
    Filter, LogLimits, Peers, Record, SegmentWriter, SharedText, Store, StoreError, StoreEvent,
    StoreLimits, StoredEnd, StoredLog,
};

/// Records and output in NATS JetStream, shared by all replicas of a cluster.
pub struct NatsStore {
    connection: Arc<NatsConnection>,
    leases: Arc<Leases>,
    replicas: Arc<Replicas>,
    records: Arc<RecordBucket>,
    events: EventQueue,
    cursors: CursorBucket,
    output: Arc<OutputStreams>,
    secret: [u8; 32],
    /// Renewals, and the index of records. They end with this value.
    tasks: JoinSet<()>,
}

/// Time limit for the records to be read when the store is opened.
const READ_RECORDS: Duration = Duration::from_secs(60);
/// Time for which the marker of a removed record is kept, so that all replicas see it.
const MARKER_MS: u64 = 600_000;
/// Number of jobs whose output is sent to NATS at the same time. Each waits for its answer.
const WRITERS: usize = 16;
/// Maximum bytes of a job's id: the name of its host, and a random part.
const LONGEST_ID: usize = 512;
/// Time limit for the last message of a replica that ends.
const LEAVE: Duration = Duration::from_secs(1);

impl NatsStore {
    /// Has the answer to the next chunk lost: it is stored, and the writer is told that it is not.
    #[cfg(test)]
    pub(super) fn lose_next_answer(&self) {
        self.output.loses_answer.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sequence number and bytes of the newest chunk of a job.
    #[cfg(test)]
    pub(super) fn newest_chunk(&self, job: &JobId) -> Option<(u64, bytes::Bytes)> {
        let last = self.connection.wait(self.output.last(job, AnsweringServer::Exact));
        last.unwrap().map(|last| (last.chunk.sequence, last.bytes))
    }

    /// Creates what is missing in NATS, and enters the cluster. `process` is shown to other replicas.
    /// Blocks the thread.
    ///
    /// # Errors
    /// If NATS can't be reached or has no JetStream.
    pub fn open(nats: &Nats, process: &str) -> Result<Self, StoreError> {
        let connection = &nats.0;
        connection.wait(connection.until_ready(async || Self::enter(connection, process).await))
    }

    async fn enter(connection: &Arc<NatsConnection>, process: &str) -> Result<Self, StoreError> {
        let name = format!("{}-{:08x}", std::process::id(), rand::rng().random::<u32>());
        let events = EventQueue::default();
        let records = Arc::new(RecordBucket::open(connection, events.clone()).await?);
        let secret = shared_secret(connection).await?;
        let own = Own {
            name,
            process: process.to_owned(),
            secret,
        };
        let leases = Leases::open(connection, own, Arc::clone(&records), events.clone()).await?;
        let leases = Arc::new(leases);
        let cancelled_tasks = CancelledTasks::open(connection).await?;
        let replicas = Replicas::new(Arc::clone(connection), Arc::clone(&leases), cancelled_tasks);
        let replicas = Arc::new(replicas);
        let mut tasks = JoinSet::new();
        let receiving = Arc::clone(&replicas).receive_hosts(events.clone());
        tasks.spawn_on(receiving, connection.handle());
        let receiving = Arc::clone(&replicas).receive_requests(events.clone());
        tasks.spawn_on(receiving, connection.handle());
        let receiving = Arc::clone(&replicas).receive_forgotten(events.clone());
        tasks.spawn_on(receiving, connection.handle());
        tasks.spawn_on(Arc::clone(&records).follow(), connection.handle());
        if timeout(READ_RECORDS, records.complete()).await.is_err() {
            return Err(failed(format!(
                "the records were not read within {READ_RECORDS:?}"
            )));
        }
        let cursors = CursorBucket::open(connection).await?;
        let output = Arc::new(OutputStreams::open(Arc::clone(connection)).await?);
        // Last: others choose this replica for hosts from now on.
        leases.enter().await?;
        tasks.spawn_on(Arc::clone(&leases).keep(), connection.handle());
        Ok(Self {
            connection: Arc::clone(connection),
            replicas,
            leases,
            records,
            events,
            cursors,
            output,
            secret,
            tasks,
        })
    }

    fn media(&self, id: &JobId) -> JobOutput {
        JobOutput::new(Arc::clone(&self.output), id.clone())
    }

    /// The fencing token for a job of this replica: that of its host, or for a fleet, which has no
    /// host, the revision of its record.
    async fn token(&self, record: &Record, revision: u64) -> Result<Option<u64>, StoreError> {
        if record.fleet.is_some() {
            return Ok(Some(revision));
        }
        match self.leases.take(&record.host).await? {
            Holder::Here(token) => Ok(Some(token)),
            Holder::Other(_) => Ok(None),
        }
    }

    /// Writes a chunk without bytes, so that NATS refuses every later chunk of the last owner.
    async fn fence(&self, id: &JobId) -> Result<(), StoreError> {
        loop {
            let last = self.output.last(id, AnsweringServer::Exact).await.map_err(failed)?;
            // This replica was paused meanwhile, and another one has taken the job over.
            if last.as_ref().map(|last| last.token) > self.output.token(id) {
                return Err(failed(fenced(id)));
            }
            // Nothing was written yet. A first chunk of the last owner would be refused, because
            // that owner expects none before it.
            let start = last.as_ref().map_or(
                ChunkPosition {
                    segment: 1,
                    offset: 0,
                },
                |last| last.chunk.end(),
            );
            let empty = NewChunk {
                start,
                length_before: 0,
                bytes: bytes::Bytes::new(),
            };
            let newest = last.map_or(0, |last| last.chunk.sequence);
            match self.output.store(id, empty, newest).await.map_err(failed)? {
                Stored::At(sequence) => {
                    self.output.note_fence(id, sequence);
                    return Ok(());
                }
                // The last owner has just written another one.
                Stored::Refused => {}
            }
        }
    }

    /// Unfinished jobs that this replica should take over: those of replicas that have ended, and
    /// durable ones on hosts that it was given.
    async fn orphans_of_others(&self) -> Result<Vec<Record>, StoreError> {
        let own_name = self.leases.name();
        let mut orphans = self
            .records
            .unfinished(
                |owner, host| owner != own_name && (self.holds(host) || self.has_ended(owner)),
                &|_| false,
            )
            .await?;
        orphans.retain(|record| {
            let is_given = record.durable && record.fleet.is_none() && self.holds(&record.host);
            // Of the jobs of a replica that has ended each one takes its share.
            let is_ours =
                self.holds(&record.host) || self.leases.preferred(&record.host) == own_name;
            is_given || (self.has_ended(&record.owner) && is_ours)
        });
        Ok(orphans)
    }

    fn has_ended(&self, replica: &str) -> bool {
        self.leases.alive(replica).is_none()
    }

    fn holds(&self, host: &str) -> bool {
        self.leases.held(host).is_some()
    }

    /// Durable jobs of this replica that it does not record, and no other replica should. A replica
    /// that was given their host is told again.
    async fn not_recorded(
        &self,
        is_recorded: &dyn Fn(&JobId) -> bool,
    ) -> Result<Vec<Record>, StoreError> {
        let own_name = self.leases.name();
        let own = self.records.unfinished(|owner, _| owner == own_name, is_recorded).await?;
        let mut left = Vec::new();
        for record in own.into_iter().filter(|record| record.durable && record.fleet.is_none()) {
            match self.leases.holder(&record.host).await? {
                Some(Holder::Other(holder)) if holder != own_name => {
                    self.replicas.tell_gained(&holder, &record.host).await;
                }
                Some(Holder::Here(_) | Holder::Other(_)) | None => left.push(record),
            }
        }
        Ok(left)
    }

    async fn remove_job(&self, id: &JobId) -> Result<(), StoreError> {
        self.cursors.remove(id).await?;
        self.output.forget_token(id);
        self.records.remove(id).await
    }
}

#[cfg(test)]
impl NatsStore {
    /// Stops renewals, as SIGSTOP does.
    pub(super) fn pause(&mut self) {
        self.tasks.abort_all();
    }

    /// The fencing token of a host, if this replica holds it or can take it.
    pub(super) fn host_token(&self, host: &str) -> Option<u64> {
        match self.connection.wait(self.leases.take(host)).unwrap() {
            Holder::Here(token) => Some(token),
            Holder::Other(_) => None,
        }
    }
}

/// Whether a caller has sent an id that no job can have. NATS would refuse the name.
fn is_too_long(id: &JobId) -> bool {
    id.as_str().len() > LONGEST_ID
}

/// A random value that all replicas share, created by the first.
async fn shared_secret(connection: &NatsConnection) -> Result<[u8; 32], StoreError> {
    let fresh: [u8; 32] = rand::rng().random();
    let settings = connection.settings().await?;
    // Fails if another replica has created it.
    settings.create(SECRET, fresh.to_vec().into()).await.ok();
    let entry = entries::exact(&settings, SECRET).await?;
    let entry = entry.ok_or_else(|| failed("the shared secret is missing"))?;
    entry
        .value
        .as_ref()
        .try_into()
        .map_err(|_| failed("the shared secret is damaged"))
}

impl Drop for NatsStore {
    fn drop(&mut self) {
        // First: a renewal would overwrite the last message.
        self.tasks.abort_all();
        self.leave();
    }
}

impl Store for NatsStore {
    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        self.connection.wait(async {
            if !self.leases.is_valid() {
                return Err(failed(
                    "the lease of this replica could not be renewed in time",
                ));
            }
            // First: a job with this key may be on a host of another replica.
            if let Some(earlier) = self.records.earlier_job(record).await? {
                return Ok(Some(earlier));
            }
            if record.fleet.is_none()
                && let Holder::Other(holder) = self.leases.take(&record.host).await?
            {
                return Err(StoreError::HeldElsewhere {
                    host: record.host.clone(),
                    holder,
                });
            }
            if let Some(earlier) = self.records.admit(record).await? {
                return Ok(Some(earlier));
            }
            let revision = self.records.revision(&record.id);
            let revision = revision.ok_or_else(|| failed("the new record has no revision"))?;
            if let Some(token) = self.token(record, revision).await? {
                self.output.note_token(&record.id, token);
            }
            Ok(None)
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn put(&self, records: &[Record]) -> Result<(), StoreError> {
        self.connection.wait(self.records.put(records))
    }

    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        if is_too_long(id) {
            return Ok(None);
        }
        self.connection.wait(self.records.get(id))
    }

    fn tombstone(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        if is_too_long(id) {
            return Ok(None);
        }
        self.connection.wait(self.records.tombstone(id))
    }

    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        self.connection.wait(self.records.list(filter))
    }

    fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        // First, because output without a record would never be deleted.
        self.media(id).remove_all(id).map_err(failed)?;
        self.connection.wait(self.remove_job(id))
    }

    fn withdraw(&self, id: &JobId) -> Result<(), StoreError> {
        self.media(id).remove_all(id).map_err(failed)?;
        self.connection.wait(async {
            self.output.forget_token(id);
            self.records.withdraw(id).await
        })
    }

    fn orphans(&self, is_recorded: &dyn Fn(&JobId) -> bool) -> Result<Vec<Record>, StoreError> {
        self.connection.wait(async {
            // Without a look at the others now, a replica that has just entered would look dead.
            self.leases.look().await?;
            let mut orphans = self.orphans_of_others().await?;
            orphans.extend(self.not_recorded(is_recorded).await?);
            Ok(orphans)
        })
    }

    fn claim(&self, record: &Record) -> Result<bool, StoreError> {
        self.connection.wait(async {
            // A job of this replica is claimed again if that has failed half-way.
            let is_ended =
                record.owner == self.leases.name() || self.leases.alive(&record.owner).is_none();
            if record.fleet.is_some() {
                if !is_ended {
                    return Ok(false);
                }
            } else if let Holder::Other(_) = self.leases.take(&record.host).await? {
                // The holder of the host alone may claim its jobs.
                return Ok(false);
            } else if !record.durable && !is_ended {
                // An attached job stays with its replica, also when its host moves.
                return Ok(false);
            }
            let Some(revision) = self.records.claim(record, self.leases.name()).await? else {
                return Ok(false);
            };
            let Some(token) = self.token(record, revision).await? else { return Ok(false) };
            self.output.note_token(&record.id, token);
            self.fence(&record.id).await?;
            Ok(true)
        })
    }

    fn owner(&self, owner: &str) -> Option<String> {
        self.leases.alive(owner)
    }

    fn socket(&self, _owner: &str) -> Option<PathBuf> {
        None
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    fn most_open(&self) -> usize {
        // It uses no descriptors.
        usize::MAX
    }

    fn events(&self) -> Option<mpsc::Receiver<StoreEvent>> {
        Some(self.events.receive())
    }

    fn fence(&self, host: &str) -> Option<(String, u64)> {
        let mut sum = crc32fast::Hasher::new();
        sum.update(self.connection.prefix.as_bytes());
        sum.update(&self.secret);
        sum.update(host.as_bytes());
        // Older than any token: a host that has been held by a replica refuses it.
        let token = self.leases.held(host).unwrap_or(0);
        Some((format!("{:08x}", sum.finalize()), token))
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        Some(Arc::clone(&self.replicas) as Arc<dyn Peers>)
    }

    fn note_removed(&self, job: &JobId) {
        self.output.forget_token(job);
    }

    fn leave(&self) {
        let leaving = async { timeout(LEAVE, self.leases.leave()).await.map_err(failed) };
        if let Err(error) = self.connection.wait(leaving) {
            tracing::debug!(%error, "others see only later that this replica has ended");
        }
    }

    fn own_name(&self) -> &str {
        self.leases.name()
    }

    fn log(&self, id: &JobId) -> Arc<StoredLog> {
        Arc::new(StoredLog::new(Arc::new(self.media(id)), id.clone()))
    }

    fn write(
        &self,
        log: &Arc<StoredLog>,
        limits: LogLimits,
        end: Option<&StoredEnd>,
    ) -> Result<SegmentWriter, StoreError> {
        match end {
            None => Ok(SegmentWriter::new(Arc::clone(log), limits)),
            Some(end) => SegmentWriter::resume(Arc::clone(log), limits, end).map_err(failed),
        }
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn shared_text(&self, name: &'static str) -> Result<Box<dyn SharedText>, StoreError> {
        Ok(Box::new(NatsText::open(&self.connection, name)?))
    }

    fn keep_audit_head(&self, log: &str, head: &str) -> Result<(), StoreError> {
        let adding = async { AuditHeads::open(&self.connection).await?.add(log, head).await };
        self.connection.wait(adding)
    }

    fn cursor(&self, job: &JobId, name: &CursorName) -> Result<LineNo, StoreError> {
        self.connection.wait(self.cursors.cursor(job, name))
    }

    fn move_cursor(
        &self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        self.connection.wait(self.cursors.move_to(job, name, step))
    }

    fn sweep(&self, bounds: &StoreLimits, now: Timestamp) -> Result<(), StoreError> {
        // Each replica has seen removals, and forgets them.
        let removed = self.records.index().take_removed_before(now.saturating_sub(MARKER_MS));
        if !self.leases.is_sweeper() {
            return Ok(());
        }
        for id in removed {
            self.connection.wait(self.records.delete_marker(&id))?;
        }
        let old = self.records.index().ended_before(now.saturating_sub(bounds.age));
        for id in old {
            self.remove(&id)?;
        }
        let excess = self.records.index().in_excess_of(bounds.bytes);
        for id in excess {
            self.media(&id).remove_all(&id).map_err(failed)?;
            // After the deletion, so that the next sweep repeats one that has failed.
            self.connection.wait(self.records.change(&id, |record| {
                (record.stored_bytes, record.dropped_lines) = (0, record.total_lines);
            }))?;
        }
        Ok(())
    }
}
