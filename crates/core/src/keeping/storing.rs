//! Stores the output of jobs, and keeps their records up to date. A line is shown once it is stored. While the store
//! makes progress, far ends wait for it. If nothing is stored for five seconds, because a disk hangs, lines are shown
//! anyway. With a store that several machines share, they wait until they are stored.
//!
//! If the disk is full, the output of a durable job waits for room, because its host keeps the rest. After a minute, and
//! at once for other jobs, lines pass without being stored, and are counted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::health::StoreHealth;
use super::kept_job::JobBeingStored;
use super::requests::{StoringRequests, Task};
use sshjobs_base::blocking::run_blocking;
use sshjobs_base::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use sshjobs_base::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_job::{EndOfJob, Job, JobId, MachineId, OutputStore, Storage, StoreLoad};
use sshjobs_store::{
    CompleteSegment, LogLimits, Record, SegmentWriter, SharedText, Store, StoreLimits, StoredLog,
};

/// Stores the output of this process's jobs and keeps their records up to date. Some threads write
/// output, as many as the store serves at once; one syncs it to disk, one writes records, one shows
/// output that takes too long to store, and one writes filters for searches.
pub(crate) struct Storing {
    pub(crate) store: Arc<dyn Store>,
    pub(super) limits: LogLimits,
    pub(super) bounds: StoreLimits,
    /// Jobs with output to store.
    pub(super) calls: Sender<JobId>,
    pub(super) tasks: Sender<Task>,
    /// Segments to write filters for.
    pub(super) complete_segments: SyncSender<CompleteSegment>,
    /// Bytes of all jobs that wait to be stored.
    pub(super) waiting: AtomicIsize,
    pub(super) kept: Mutex<HashMap<JobId, Arc<JobBeingStored>>>,
    /// Jobs with a batch that could not be stored and must be tried again.
    pub(super) to_store_again: Mutex<HashSet<JobId>>,
    /// Jobs whose records may be out of date.
    pub(super) changed: Mutex<HashSet<JobId>>,
    /// Time of the last write or failure to write. While this advances, readers wait for the store.
    pub(super) progress: Mutex<Instant>,
    /// Whether nothing was written for five seconds (`OVERDUE`) although output waited.
    pub(super) stands_still: AtomicBool,
    /// The state directory was removed or replaced, so further writes would be lost.
    pub(super) is_gone: AtomicBool,
    /// Whether other machines share the store.
    pub(crate) is_shared: bool,
    /// Jobs whose output the store has refused, because another machine has taken them over.
    pub(super) taken_over: mpsc::Sender<JobId>,
    taken_over_receiver: Mutex<Option<mpsc::Receiver<JobId>>>,
    pub(super) health: StoreHealth,
    /// State of the clock by which old jobs are deleted, opened at the first sweep.
    pub(super) retention_clock: OnceLock<Box<dyn SharedText>>,
    /// Closed when this value is dropped.
    _is_here: [Sender<()>; 2],
}

/// Bytes of all jobs that wait to be stored, beyond which each far end waits until its own are stored.
const MANY_WAITING: isize = 128 << 20;
/// Maximum bytes of all jobs that wait while the store stands still. Beyond it, output is shown before it is stored.
const MOST_WAITING: isize = 256 << 20;
/// Maximum segments that wait for filters. Searches read the others without.
pub(super) const MOST_TO_FILTER: usize = 64;
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
        let (complete_segments, to_filter) = sync_channel(MOST_TO_FILTER);
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
            complete_segments,
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
            complete_segments: to_filter,
        };
        (storing, requests)
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
        let kept = JobBeingStored::new(job, writer, record);
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
