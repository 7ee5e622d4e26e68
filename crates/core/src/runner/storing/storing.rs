//! Stores the output of jobs, and keeps their records up to date. A line is shown once it is stored. While the store
//! makes progress, far ends wait for it. If nothing is stored for five seconds, because a disk hangs, lines are shown
//! anyway. With a store that several machines share, they wait until they are stored.
//!
//! If the disk is full, the output of a durable job waits for room, because its host keeps the rest. After a minute, and
//! at once for other jobs, lines pass without being stored, and are counted.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::health::StoreHealth;
use super::requests::{StoringRequests, Task};
use super::retention_clock::{ClockReading, is_clock_trusted};
use sshjobs_base::blocking::run_blocking;
use sshjobs_base::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use sshjobs_base::sync::mpsc::{Sender, channel};
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_job::{
    Batch, EndOfJob, Job, JobId, MachineId, OutputStore, Storage, StoreLoad, wall_now,
};
use sshjobs_store::{
    LogLimits, Record, SegmentWriter, SharedText, Store, StoreError, StoreLimits, StoredLog,
};

/// Stores the output of this process's jobs and keeps their records up to date. Some threads write
/// output, as many as the store serves at once; one syncs it to disk, one writes records, and one
/// shows output that takes too long to store.
pub(crate) struct Storing {
    pub(crate) store: Arc<dyn Store>,
    limits: LogLimits,
    bounds: StoreLimits,
    /// Jobs with output to store.
    calls: Sender<JobId>,
    tasks: Sender<Task>,
    /// Bytes of all jobs that wait to be stored.
    waiting: AtomicIsize,
    kept: Mutex<HashMap<JobId, Arc<JobBeingStored>>>,
    /// Jobs with a batch that could not be stored and must be tried again.
    to_store_again: Mutex<HashSet<JobId>>,
    /// Jobs whose records may be out of date.
    changed: Mutex<HashSet<JobId>>,
    /// Time of the last write or failure to write. While this advances, readers wait for the store.
    progress: Mutex<Instant>,
    /// Whether nothing was written for [`OVERDUE`] although output waited.
    stands_still: AtomicBool,
    /// The state directory was removed or replaced, so further writes would be lost.
    is_gone: AtomicBool,
    /// Whether other machines share the store.
    pub(crate) is_shared: bool,
    /// Jobs whose output the store has refused, because another machine has taken them over.
    taken_over: mpsc::Sender<JobId>,
    taken_over_receiver: Mutex<Option<mpsc::Receiver<JobId>>>,
    health: StoreHealth,
    /// State of the clock by which old jobs are deleted, opened at the first sweep.
    retention_clock: OnceLock<Box<dyn SharedText>>,
    /// Closed when this value is dropped.
    _is_here: [Sender<()>; 2],
}

/// A job whose output is stored by this process.
struct JobBeingStored {
    job: Arc<Job>,
    writer: Mutex<SegmentWriter>,
    /// The batch that could not be stored and must be tried again before any later output.
    /// Locked only with `writer`.
    batch_to_store_again: Mutex<Option<Arc<Batch>>>,
    /// Since when the disk has had no room for this job's output.
    full_since: Mutex<Option<Instant>>,
    record: Mutex<Record>,
    /// The record has the job's outcome.
    is_settled: AtomicBool,
}

/// Resolves when a job is registered in the store.
pub(crate) type Registration = BoxFuture<'static, Result<Option<Record>, StoreError>>;

/// Time limit for registering a job in the store.
const REGISTRATION_TIME: Duration = Duration::from_secs(5);

/// Time limits for bringing records up to date: before they are read, and before one is deleted or
/// the process ends.
pub(crate) const FLUSH_TO_READ: Duration = Duration::from_millis(500);
pub(crate) const FLUSH_TO_END: Duration = Duration::from_secs(30);

/// Bytes of all jobs that wait to be stored, beyond which each far end waits until its own are stored.
const MANY_WAITING: isize = 128 << 20;
/// Maximum bytes of all jobs that wait while the store stands still. Beyond it, output is shown before it is stored.
const MOST_WAITING: isize = 256 << 20;
/// Output is shown before it is stored once nothing at all was stored for this time.
const OVERDUE: Duration = Duration::from_secs(5);
/// How long the output of a durable job waits for room on the disk.
const ROOM_PATIENCE: Duration = Duration::from_secs(60);
/// Approximate bytes written at once.
const BATCH: usize = 64 << 10;
/// Batches of one job after which other jobs get their turn.
const TURN: usize = 16;
/// Maximum jobs that wait to be given up.
const TAKEN_OVER: usize = 4096;

impl Storing {
    /// Calls the store on a blocking thread. `None` if the call panics or the runtime shuts down.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> T + Send + 'static,
    ) -> Option<T> {
        let store = Arc::clone(&self.store);
        run_blocking(move || call(&*store)).await
    }

    /// Stores output and records in threads.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        limits: LogLimits,
        bounds: StoreLimits,
    ) -> std::io::Result<Arc<Self>> {
        let (storing, requests) = Self::new(store, limits, bounds);
        requests.handle_in_threads(&storing)?;
        Ok(storing)
    }

    /// A value without threads: the caller handles the requests.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        limits: LogLimits,
        bounds: StoreLimits,
    ) -> (Arc<Self>, StoringRequests) {
        let (calls, called) = channel();
        let (tasks, asked) = channel();
        let (sync_on, end_for_sync) = channel();
        let (watch_on, end_for_overdue) = channel();
        let waiting = AtomicIsize::new(0);
        let (taken_over, receiver) = mpsc::channel(TAKEN_OVER);
        let storing = Arc::new(Self {
            is_shared: store.peers().is_some(),
            taken_over,
            taken_over_receiver: Mutex::new(Some(receiver)),
            health: StoreHealth::new(),
            retention_clock: OnceLock::new(),
            store,
            limits,
            bounds,
            calls,
            tasks,
            waiting,
            kept: Mutex::default(),
            to_store_again: Mutex::default(),
            changed: Mutex::default(),
            progress: Mutex::new(Instant::now()),
            stands_still: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            _is_here: [sync_on, watch_on],
        });
        let requests = StoringRequests {
            called,
            tasks: asked,
            end_for_sync,
            end_for_overdue,
        };
        (storing, requests)
    }

    /// Registers a new job. Resolves to the existing record if its key was already used. Bounded in
    /// time.
    pub(crate) fn register(&self, record: &Record) -> Registration {
        let (sender, registered) = oneshot::channel();
        let record = Record {
            owner: self.store.own_name().to_owned(),
            ..record.clone()
        };
        // A thread that has ended has dropped its receiver; then the reply's sender is dropped too.
        self.tasks.send(Task::Register(Box::new(record), sender)).ok();
        // The request is sent already: an attached job is launched while this future waits.
        async move {
            match timeout(REGISTRATION_TIME, registered).await {
                Ok(Ok(registered)) => registered,
                Ok(Err(_)) => Err(StoreError::Records("the store has stopped".to_owned())),
                Err(_) => Err(StoreError::Records(format!(
                    "no answer within {REGISTRATION_TIME:?}"
                ))),
            }
        }
        .boxed()
    }

    /// Stores the output of a registered job from now on.
    pub(crate) fn keep(
        self: &Arc<Self>,
        job: &Arc<Job>,
        record: Record,
        machine: Option<MachineId>,
    ) {
        let log = self.store.log(&job.id);
        match self.store.write(&log, self.limits, None) {
            Ok(writer) => {
                let owner = self.store.own_name().to_owned();
                self.keep_on(
                    job,
                    log,
                    writer,
                    Record {
                        machine,
                        owner,
                        ..record
                    },
                );
            }
            Err(error) => job.note_trouble(Some(error.to_string())),
        }
    }

    /// Continues to store the output of an adopted job.
    pub(crate) fn keep_on(
        self: &Arc<Self>,
        job: &Arc<Job>,
        log: Arc<StoredLog>,
        writer: SegmentWriter,
        record: Record,
    ) {
        let kept = JobBeingStored {
            job: Arc::clone(job),
            writer: Mutex::new(writer),
            batch_to_store_again: Mutex::default(),
            full_since: Mutex::default(),
            record: Mutex::new(record),
            is_settled: AtomicBool::new(false),
        };
        // Before `store_in`: a notification for a job that is not kept would be dropped, and no
        // second one would follow.
        lock(&self.kept).insert(job.id.clone(), Arc::new(kept));
        job.store_in(Storage::new(
            log,
            Some(Arc::clone(self) as Arc<dyn OutputStore>),
        ));
        // Changes before this are in no record yet.
        job.note_change();
    }

    /// Deletes the record of a job that failed to start, unless a caller has its id. Frees its key if nothing can have
    /// run.
    pub(crate) fn settle(
        &self,
        job: &Job,
        mut record: Record,
        is_known: bool,
        may_have_begun: bool,
    ) {
        record.owner = self.store.own_name().to_owned();
        record.update(&job.status(), None);
        let task = if is_known {
            Task::Settle(Box::new(record))
        } else if may_have_begun {
            Task::Discard(job.id.clone())
        } else {
            Task::Withdraw(job.id.clone())
        };
        // The queue keeps the order, so a registration that still waits is handled before this.
        self.tasks.send(task).ok();
    }

    /// Jobs that another machine has taken over. The first caller gets the receiver.
    pub(crate) fn taken_over(&self) -> Option<mpsc::Receiver<JobId>> {
        lock(&self.taken_over_receiver).take()
    }

    /// Stops storing a job that another machine stores now.
    pub(crate) fn give_up(&self, id: &JobId) {
        let given_up = lock(&self.kept).remove(id);
        lock(&self.changed).remove(id);
        if let Some(kept) = given_up {
            kept.job.drop_pending();
        }
    }

    /// Stops storing.
    pub(crate) fn stop(&self) {
        // The kept jobs refer to this value through their storage: the cycle would keep the
        // threads running.
        lock(&self.kept).clear();
    }

    /// Requests that the record of a job be written soon.
    pub(crate) fn touch(&self, id: &JobId) {
        self.tasks.send(Task::Put(id.clone())).ok();
    }

    /// Writes the records of all changed jobs. Resolves after the attempt, or after `time_limit`, because
    /// another process may hold the database.
    pub(crate) async fn flush(&self, time_limit: Duration) {
        let (sender, flushed) = oneshot::channel();
        self.tasks.send(Task::Flush(sender)).ok();
        timeout(time_limit, flushed).await.ok();
    }

    /// Whether an ended job is stored to its last line, so that it need not stay in memory.
    pub(crate) fn has_all_of(&self, job: &Job) -> bool {
        if self.is_gone.load(Relaxed) {
            return false;
        }
        // A job is removed from `kept` once it is settled and synced.
        let kept = lock(&self.kept).get(&job.id).cloned();
        job.status().unstored.is_none() && kept.is_none_or(|kept| kept.is_settled.load(Relaxed))
    }

    /// Bytes that wait to be stored.
    pub(crate) fn waiting_bytes(&self) -> usize {
        usize::try_from(self.waiting.load(Relaxed)).unwrap_or(0)
    }

    /// Bytes added to the queues minus those taken out.
    #[cfg(all(test, shuttle))]
    pub(super) fn waiting_balance(&self) -> isize {
        self.waiting.load(Relaxed)
    }

    /// Stores pending output of a job, and shows it.
    pub(super) fn store_output(&self, id: &JobId) {
        let Some(kept) = lock(&self.kept).get(id).cloned() else { return };
        let job = &kept.job;
        let mut writer = lock(&kept.writer);
        for _ in 0..TURN {
            let to_store_again = lock(&kept.batch_to_store_again).take();
            let next = to_store_again.or_else(|| job.take_batch(BATCH, writer.wants_checkpoint()));
            let Some(batch) = next else { return };
            let stored = if self.is_gone.load(Relaxed) {
                Err(gone())
            } else {
                writer.append(&batch)
            };
            if let Err(error) = &stored {
                tracing::debug!(job = %job.id, %error, "output can't be stored");
                self.health.count_error();
                if self.is_shared && !self.is_kept(&kept) {
                    return;
                }
                let is_taken_over = self.is_shared && error.kind() == ErrorKind::PermissionDenied;
                // Not shown: the machine that has taken the job over numbers its lines. If too many jobs
                // wait to be given up, the next attempt to store the batch reports this one again.
                if is_taken_over && self.taken_over.try_send(id.clone()).is_ok() {
                    return;
                }
                if self.is_shared {
                    // Not shown until it is stored: other machines must give its lines the same numbers.
                    // The limits of `Job::keep` bound what waits.
                    job.note_trouble(Some(format!("its output waits to be stored: {error}")));
                    *lock(&kept.batch_to_store_again) = Some(batch);
                    lock(&self.to_store_again).insert(id.clone());
                    return;
                }
                if kept.waits_for_room(error) {
                    job.note_trouble(Some(format!("its output waits to be stored: {error}")));
                    *lock(&kept.batch_to_store_again) = Some(batch);
                    lock(&self.to_store_again).insert(id.clone());
                    self.note_progress();
                    return;
                }
                job.note_trouble(Some(format!("its output can't be stored: {error}")));
            } else {
                *lock(&kept.full_since) = None;
            }
            self.note_progress();
            // After the append: a reader must find shown lines in the store.
            let newest = job.show(&batch, stored.is_ok());
            if let Some(newest) = newest {
                writer.note_newest(newest);
            }
            if batch.is_end {
                self.tasks.send(Task::Put(id.clone())).ok();
            }
        }
        // The job's queue is not empty, so the job itself does not notify this thread again.
        self.calls.send(id.clone()).ok();
    }

    /// Whether output is still stored by this writer. Not if the job was given up, even if it was
    /// taken over again since.
    fn is_kept(&self, kept: &JobBeingStored) -> bool {
        let all = lock(&self.kept);
        all.get(&kept.job.id).is_some_and(|known| Arc::ptr_eq(&known.job, &kept.job))
    }

    /// Notes that the store has written something, or failed to, and so does not stand still.
    fn note_progress(&self) {
        *lock(&self.progress) = Instant::now();
        self.stands_still.store(false, Relaxed);
    }

    /// Calls the threads that write output again for all jobs whose output could not be stored.
    fn store_again(&self) {
        for id in std::mem::take(&mut *lock(&self.to_store_again)) {
            self.calls.send(id).ok();
        }
    }

    /// Marks each job as unstored if the state directory was moved or deleted.
    fn look_whether_gone(&self, kept: &[Arc<JobBeingStored>]) {
        let Err(error @ StoreError::Replaced(_)) = self.store.check() else { return };
        if !self.is_gone.swap(true, Relaxed) {
            tracing::error!(%error, "nothing is stored any more");
        }
        for kept in kept.iter().filter(|kept| !kept.is_settled.load(Relaxed)) {
            kept.job.note_trouble(Some(error.to_string()));
        }
    }

    /// Syncs written output to disk, and drops jobs that are stored to their end.
    pub(crate) fn sync_all(&self) {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        self.look_whether_gone(&kept);
        for kept in kept {
            // Read before the sync: output that is written between the two needs another sync.
            let is_settled = kept.is_settled.load(Relaxed);
            sync(&kept);
            if is_settled {
                lock(&self.kept).remove(&kept.job.id);
            }
        }
    }

    /// Shows output that waits too long for a disk, or has output stored again that a shared store
    /// could not take. Does no I/O, so that a hung disk can't stop it.
    pub(crate) fn show_overdue_or_store_again(&self) {
        self.store_again();
        // A slow disk that makes progress is waited for.
        if lock(&self.progress).elapsed() < OVERDUE {
            return;
        }
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        let is_overdue = kept.iter().any(|kept| kept.job.is_overdue(OVERDUE));
        if is_overdue && !self.stands_still.swap(true, Relaxed) {
            kept.iter().for_each(|kept| kept.job.wake_recorder());
        }
        if self.is_shared {
            return;
        }
        for kept in kept {
            if kept.job.show_overdue(OVERDUE) {
                kept.job.note_trouble(Some(format!("nothing could be stored for {OVERDUE:?}")));
            }
        }
    }

    /// Why nothing can be stored now, in words.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.health.trouble()
    }

    /// Bytes that are free on the store's disk, if known.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.health.free_bytes()
    }

    /// Number of writes that have failed.
    pub(crate) fn errors(&self) -> u64 {
        self.health.errors()
    }

    /// Tries the store from time to time. Blocking.
    pub(super) fn probe_if_due(&self) {
        if self.health.is_probe_due() {
            self.health.probe(&*self.store);
        }
    }

    /// Deletes stored jobs that exceed a limit. None is old while the clock is in doubt.
    pub(super) fn sweep(&self) {
        let trusted = self
            .retention_clock()
            .and_then(|text| is_clock_trusted(text, &ClockReading::now()));
        let is_trusted = trusted.unwrap_or_else(|error| {
            tracing::warn!(%error, "old jobs are not deleted: the time of the last sweep is unknown");
            false
        });
        let bounds = if is_trusted {
            self.bounds
        } else {
            StoreLimits {
                age: u64::MAX,
                ..self.bounds
            }
        };
        warn(self.store.sweep(&bounds, wall_now()));
    }

    fn retention_clock(&self) -> Result<&dyn SharedText, StoreError> {
        if let Some(text) = self.retention_clock.get() {
            return Ok(&**text);
        }
        let opened = self.store.shared_text("retention_clock")?;
        Ok(&**self.retention_clock.get_or_init(|| opened))
    }

    /// Closes the files of all jobs if there are too many. Each is opened again when it is written to.
    pub(super) fn close_files_if_many(&self) {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        if kept.len() <= self.store.most_open() {
            return;
        }
        for kept in kept {
            // A writer that is in use may wait for a hung disk. The next round closes its file.
            if let Ok(mut writer) = kept.writer.try_lock() {
                writer.close_file();
            }
        }
    }

    /// Writes the records of all changed jobs.
    pub(super) fn put_changed(&self) -> Result<(), StoreError> {
        let changed = std::mem::take(&mut *lock(&self.changed));
        self.put_records(changed)
    }

    /// Writes the records of these jobs. Those that have ended are settled then.
    fn put_records(&self, ids: HashSet<JobId>) -> Result<(), StoreError> {
        let kept: Vec<Arc<JobBeingStored>> = {
            let all = lock(&self.kept);
            ids.iter().filter_map(|id| all.get(id).cloned()).collect()
        };
        let updates: Vec<Update> = kept.into_iter().map(JobBeingStored::update).collect();
        let now = wall_now();
        let records: Vec<Record> = updates
            .iter()
            // `seen_at` is set only in the written copy, so that time alone changes no record.
            .filter(|update| *lock(&update.kept.record) != update.record)
            .map(|update| Record {
                seen_at: now,
                ..update.record.clone()
            })
            .collect();
        if !records.is_empty()
            && let Err(error) = self.store.put(&records)
        {
            self.health.count_error();
            // The next round tries again.
            lock(&self.changed).extend(updates.into_iter().map(|update| update.record.id));
            return Err(error);
        }

        for Update {
            kept,
            record,
            has_byte_count,
        } in updates
        {
            let is_over = record.outcome.is_some();
            // A fleet's log does not change when the state of a member does.
            let changes_unnoticed = !is_over && kept.job.fleet.is_some();
            if changes_unnoticed || !has_byte_count {
                lock(&self.changed).insert(record.id.clone());
            }
            *lock(&kept.record) = record;
            if is_over && has_byte_count {
                kept.is_settled.store(true, Relaxed);
            }
        }
        Ok(())
    }

    /// Handles several requests. Records are written together, in one transaction.
    pub(super) fn do_tasks(&self, tasks: impl Iterator<Item = Task>) {
        let mut due = HashSet::new();
        let mut flushes = Vec::new();
        for task in tasks {
            match task {
                // Fails only if the caller has gone away.
                Task::Register(record, sender) => drop(sender.send(self.store.admit(&record))),
                Task::Put(id) => drop(due.insert(id)),
                Task::Discard(id) => warn(self.store.remove(&id)),
                Task::Withdraw(id) => warn(self.store.withdraw(&id)),
                Task::Settle(record) => warn(self.store.put(std::slice::from_ref(&*record))),
                Task::Flush(sender) => flushes.push(sender),
            }
        }
        if flushes.is_empty() {
            warn(self.put_records(due));
        } else {
            due.extend(std::mem::take(&mut *lock(&self.changed)));
            warn(self.put_records(due));
            // Also after a failure: the caller then reads the older records.
            for sender in flushes {
                sender.send(()).ok();
            }
        }
    }
}

/// The current record of a job, not yet stored.
struct Update {
    kept: Arc<JobBeingStored>,
    record: Record,
    /// Whether `record.stored_bytes` is current. It is not while the writer is busy.
    has_byte_count: bool,
}

impl JobBeingStored {
    /// Whether the job's output waits until the disk has room: its host keeps it, and it has not waited for too long.
    fn waits_for_room(&self, error: &std::io::Error) -> bool {
        let is_full = matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        );
        if !is_full || !self.job.spec.durable {
            return false;
        }
        let mut full_since = lock(&self.full_since);
        full_since.get_or_insert_with(Instant::now).elapsed() < ROOM_PATIENCE
    }

    fn update(self: Arc<Self>) -> Update {
        // First, so that a later change marks the job as changed again.
        self.job.take_changed();
        let mut record = lock(&self.record).clone();
        record.update(
            &self.job.status(),
            self.job.read_log(sshjobs_job::Log::pgid),
        );
        record.resizes = self.job.resizes();
        if let Some(fleet) = &self.job.fleet {
            record.members.clone_from(&fleet.lock_members());
        }
        // Not a blocking lock: its holder may be waiting for a disk, and all other records would
        // wait with it.
        let byte_count = self.writer.try_lock().ok().map(|writer| writer.bytes());
        record.stored_bytes = byte_count.unwrap_or(record.stored_bytes);
        Update {
            kept: self,
            record,
            has_byte_count: byte_count.is_some(),
        }
    }
}

impl OutputStore for Storing {
    fn notify(&self, job: &JobId) {
        // Fails only once the threads have ended, with `Storing`.
        self.calls.send(job.clone()).ok();
    }

    fn note_change(&self, job: &JobId) {
        lock(&self.changed).insert(job.clone());
    }

    fn account(&self, bytes: isize) {
        self.waiting.fetch_add(bytes, Relaxed);
    }

    fn load(&self) -> StoreLoad {
        let waiting = self.waiting.load(Relaxed);
        match self.stands_still.load(Relaxed) {
            true if waiting > MOST_WAITING => StoreLoad::IsFull,
            true => StoreLoad::StandsStill,
            false if waiting > MANY_WAITING => StoreLoad::Heavy,
            false => StoreLoad::Light,
        }
    }

    fn end_of_job(&self) -> EndOfJob {
        if self.is_shared {
            EndOfJob::WaitsForStore
        } else {
            EndOfJob::IsShownAtOnce
        }
    }
}

fn sync(kept: &JobBeingStored) {
    // Taken out of the lock, so that no writer waits for the disk.
    let unsynced = lock(&kept.writer).take_unsynced();
    if let Some(Err(error)) = unsynced.map(|unsynced| unsynced.sync()) {
        // A job that has ended keeps this trouble, and so stays in memory.
        kept.job
            .note_trouble(Some(format!("its output did not reach the disk: {error}")));
        tracing::warn!(job = %kept.job.id, %error, "output did not reach the disk");
    }
}

fn gone() -> std::io::Error {
    std::io::Error::other("the state directory was removed or replaced; restart this process")
}

pub(super) fn warn(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "the records of jobs can't be written");
    }
}

#[cfg(test)]
mod tests;
