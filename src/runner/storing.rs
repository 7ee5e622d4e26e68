use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::job::{Job, JobId, Keeper, MachineId, Storage};
use crate::lock::lock;
use crate::store::{Bounds, LogLimits, LogWriter, Record, Store, StoreError, StoredLog};

/// Stores what this process's jobs print, and keeps their records up to date, on threads of its own: one writes output, one waits
/// for the disk, one keeps the records, and one shows output for which
/// these take too long.
pub(super) struct Storing {
    pub(super) store: Arc<dyn Store>,
    limits: LogLimits,
    bounds: Bounds,
    /// Jobs with output to be stored.
    calls: Sender<JobId>,
    tasks: Sender<Task>,
    /// Bytes of all jobs that wait to be stored.
    waiting: AtomicIsize,
    kept: Mutex<HashMap<JobId, Arc<Kept>>>,
    /// Closed when this goes.
    _is_here: [Sender<()>; 2],
}

/// A job whose output is stored by this process.
struct Kept {
    job: Arc<Job>,
    writer: Mutex<LogWriter>,
    record: Mutex<Record>,
    /// The record says how the job has ended.
    is_settled: AtomicBool,
}

/// A job that is being taken in.
pub(super) type Admission = BoxFuture<'static, Result<Option<Record>, StoreError>>;

/// Time limit for the records to take a job in.
const ADMISSION: Duration = Duration::from_secs(5);

/// What the records' thread is asked to do.
enum Task {
    /// Take in a new job.
    Admit(Box<Record>, oneshot::Sender<Result<Option<Record>, StoreError>>),
    /// A job has ended: its record is not left for the next round.
    Put,
    /// The same for a job that runs now.
    Touch(JobId),
    /// A job could not be started, and nobody knows of it.
    Discard(JobId),
    /// A job could not be started, and somebody knows of it.
    Settle(Box<Record>),
    /// Bring all records up to date, and say when that is done.
    Flush(oneshot::Sender<()>),
}

/// Most bytes of all jobs that wait to be stored; then they are shown unstored.
const MOST_WAITING: isize = 256 << 20;
/// Time after which what waits to be stored is shown unstored.
const OVERDUE: Duration = Duration::from_secs(3);
/// Bytes that are written at a time, about.
const BATCH: usize = 64 << 10;
/// Batches of one job after which others have their turn.
const TURN: usize = 16;
/// Interval at which what was written is made to reach the disk, and records of jobs that run are brought up to date.
const ROUND: Duration = Duration::from_secs(1);
/// Interval at which what is too old or too much is let go.
const SWEEP: Duration = Duration::from_secs(30);
const FIRST_SWEEP: Duration = Duration::from_secs(2);
/// Most files that are held open.
const MOST_OPEN: usize = 512;

impl Storing {
    pub(super) fn new(
        store: Arc<dyn Store>,
        limits: LogLimits,
        bounds: Bounds,
    ) -> std::io::Result<Arc<Self>> {
        let ((calls, called), (tasks, asked)) = (channel(), channel());
        let ((sync_on, synced_out), (watch_on, watched_out)) = (channel(), channel());
        let waiting = AtomicIsize::new(0);
        let storing = Arc::new(Self {
            store,
            limits,
            bounds,
            calls,
            tasks,
            waiting,
            kept: Mutex::default(),
            _is_here: [sync_on, watch_on],
        });
        let [for_output, for_disk, for_records, for_readers] = [(); 4].map(|()| Arc::downgrade(&storing));
        thread::Builder::new()
            .name("sshjobs-output".into())
            .spawn(move || write_output(&for_output, &called))?;
        thread::Builder::new()
            .name("sshjobs-sync".into())
            .spawn(move || sync_output(&for_disk, &synced_out))?;
        thread::Builder::new()
            .name("sshjobs-overdue".into())
            .spawn(move || show_overdue(&for_readers, &watched_out))?;
        thread::Builder::new()
            .name("sshjobs-records".into())
            .spawn(move || keep_records(&for_records, &asked))?;
        Ok(storing)
    }

    /// Begins to take in a new job; comes back with the record of another when its key was used for that. Bounded in time.
    pub(super) fn admit(&self, record: &Record) -> Admission {
        let (sender, admitted) = oneshot::channel();
        let record = Record { owner: self.store.own_name().to_owned(), ..record.clone() };
        // A thread that has ended has taken its channel with it.
        self.tasks.send(Task::Admit(Box::new(record), sender)).ok();
        let late = || StoreError::Records(format!("no answer within {ADMISSION:?}"));
        async move {
            let admitted = timeout(ADMISSION, admitted).await.map_err(|_| late())?;
            admitted.unwrap_or_else(|_| Err(StoreError::Records("the store has stopped".to_owned())))
        }
        .boxed()
    }

    /// From now on the output of a job that was admitted is stored.
    pub(super) fn keep(self: &Arc<Self>, job: &Arc<Job>, record: Record, machine: Option<MachineId>) {
        let log = self.store.log(&job.id);
        match self.store.write(&log, self.limits, None) {
            Ok(writer) => {
                let owner = self.store.own_name().to_owned();
                self.keep_on((job, log), writer, Record { machine, owner, ..record });
            }
            Err(error) => job.note_trouble(Some(error.to_string())),
        }
    }

    /// Goes on storing the output of a job that was taken over.
    pub(super) fn keep_on(
        self: &Arc<Self>,
        (job, log): (&Arc<Job>, Arc<StoredLog>),
        writer: LogWriter,
        record: Record,
    ) {
        let kept = Kept {
            job: Arc::clone(job),
            writer: Mutex::new(writer),
            record: Mutex::new(record),
            is_settled: AtomicBool::new(false),
        };
        lock(&self.kept).insert(job.id.clone(), Arc::new(kept));
        job.store_in(Storage::new(log, Some(Arc::clone(self) as Arc<dyn Keeper>)));
    }

    /// A job could not be started. When nobody knows of it, its record goes.
    pub(super) fn settle(&self, job: &Job, mut record: Record, is_known: bool) {
        record.owner = self.store.own_name().to_owned();
        record.update(&job.status(), None);
        let task = if is_known { Task::Settle(Box::new(record)) } else { Task::Discard(job.id.clone()) };
        self.tasks.send(task).ok();
    }

    /// Stores nothing more.
    pub(super) fn stop(&self) {
        lock(&self.kept).clear();
    }

    /// A job runs now: its record says so soon.
    pub(super) fn touch(&self, id: &JobId) {
        self.tasks.send(Task::Touch(id.clone())).ok();
    }

    /// Comes when the records say how the jobs stand now.
    pub(super) async fn flush(&self) {
        let (sender, flushed) = oneshot::channel();
        self.tasks.send(Task::Flush(sender)).ok();
        flushed.await.ok();
    }

    /// Whether a job that has ended is stored to its last line, so that it need not be kept in memory.
    pub(super) fn has_all_of(&self, job: &Job) -> bool {
        let kept = lock(&self.kept).get(&job.id).cloned();
        job.status().unstored.is_none() && kept.is_none_or(|kept| kept.is_settled.load(Relaxed))
    }

    /// Bytes that wait to be stored.
    pub(super) fn waiting_bytes(&self) -> usize {
        usize::try_from(self.waiting.load(Relaxed)).unwrap_or(0)
    }

    /// Stores some of what a job has printed, and shows it.
    fn store_output(&self, id: &JobId) {
        let Some(kept) = lock(&self.kept).get(id).cloned() else { return };
        let (job, mut writer) = (&kept.job, lock(&kept.writer));
        for _ in 0..TURN {
            let Some(batch) = job.take_batch(BATCH, writer.wants_checkpoint()) else { return };
            let stored = writer.append(&batch);
            if let Err(error) = &stored {
                tracing::debug!(job = %job.id, %error, "output can't be stored");
            }
            if let Err(error) = &stored {
                job.note_trouble(Some(format!("its output can't be stored: {error}")));
            }
            // First: readers must find what they are shown.
            let newest = job.show(&batch, stored.is_ok());
            if let Some(newest) = newest {
                writer.note_newest(newest);
            }
            if batch.is_end {
                self.tasks.send(Task::Put).ok();
            }
        }
        self.calls.send(id.clone()).ok();
    }

    fn rest_some(&self) {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        if kept.len() > MOST_OPEN {
            kept.iter().for_each(|kept| lock(&kept.writer).rest());
        }
    }

    /// Brings records up to date, and lets go of the jobs that are over.
    fn put_records(&self, is_due: impl Fn(&JobId) -> bool) -> Result<(), StoreError> {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        let (mut records, mut over) = (Vec::new(), Vec::new());
        for kept in kept {
            let mut record = lock(&kept.record);
            let (status, before) = (kept.job.status(), record.clone());
            let is_over = status.ended_at.is_some();
            if !is_over && !is_due(&kept.job.id) {
                continue;
            }
            record.update(&status, kept.job.read_log(crate::job::Log::pgid));
            if let Some(fleet) = &kept.job.fleet {
                record.members.clone_from(&fleet.members());
            }
            // Whoever writes may be waiting for a disk.
            record.stored_bytes = kept.writer.try_lock().map_or(record.stored_bytes, |writer| writer.bytes());
            if *record != before {
                records.push(record.clone());
            }
            if is_over {
                over.push(Arc::clone(&kept));
            }
        }
        if !records.is_empty() {
            self.store.put(&records)?;
        }
        over.iter().for_each(|kept| kept.is_settled.store(true, Relaxed));
        Ok(())
    }

    fn do_task(&self, task: Task) {
        match task {
            // Whoever asked may have gone.
            Task::Admit(record, sender) => drop(sender.send(self.store.admit(&record))),
            Task::Put => warn(self.put_records(|_| false)),
            Task::Touch(id) => warn(self.put_records(|due| *due == id)),
            Task::Discard(id) => warn(self.store.remove(&id)),
            Task::Settle(record) => warn(self.store.put(std::slice::from_ref(&*record))),
            Task::Flush(sender) => {
                warn(self.put_records(|_| true));
                sender.send(()).ok();
            }
        }
    }
}

impl Keeper for Storing {
    fn call(&self, job: &JobId) {
        // When the thread has ended, so has the process.
        self.calls.send(job.clone()).ok();
    }

    fn weigh(&self, bytes: isize) -> bool {
        self.waiting.fetch_add(bytes, Relaxed) + bytes > MOST_WAITING
    }
}

fn write_output(storing: &Weak<Storing>, called: &Receiver<JobId>) {
    let mut rested = Instant::now();
    loop {
        let call = called.recv_timeout(ROUND);
        let Some(storing) = storing.upgrade() else { return };
        match call {
            Ok(id) => storing.store_output(&id),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if rested.elapsed() >= ROUND {
            storing.rest_some();
            rested = Instant::now();
        }
    }
}

fn sync_output(storing: &Weak<Storing>, gone: &Receiver<()>) {
    while gone.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
        let Some(storing) = storing.upgrade() else { return };
        let kept: Vec<_> = lock(&storing.kept).values().cloned().collect();
        for kept in kept {
            let is_settled = kept.is_settled.load(Relaxed);
            sync(&kept);
            if is_settled {
                lock(&storing.kept).remove(&kept.job.id);
            }
        }
    }
}

/// Does no I/O, so that a hung disk can't stop it.
fn show_overdue(storing: &Weak<Storing>, gone: &Receiver<()>) {
    while gone.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
        let Some(storing) = storing.upgrade() else { return };
        let kept: Vec<_> = lock(&storing.kept).values().cloned().collect();
        for kept in kept {
            if kept.job.show_overdue(OVERDUE) {
                kept.job.note_trouble(Some(format!("its output could not be stored within {OVERDUE:?}")));
            }
        }
    }
}

fn sync(kept: &Kept) {
    // Nobody who writes waits for the disk.
    let unsynced = lock(&kept.writer).take_unsynced();
    if let Some(Err(error)) = unsynced.map(|unsynced| unsynced.sync()) {
        tracing::debug!(job = %kept.job.id, %error, "output did not reach the disk");
    }
}

fn keep_records(storing: &Weak<Storing>, asked: &Receiver<Task>) {
    // A program that ends soon leaves sweeping to others, and one that begins has better things to do.
    let (mut put, mut sweep_at) = (Instant::now(), Instant::now() + FIRST_SWEEP);
    loop {
        let task = asked.recv_timeout(ROUND.saturating_sub(put.elapsed()));
        let Some(storing) = storing.upgrade() else { return };
        match task {
            Ok(task) => storing.do_task(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if put.elapsed() >= ROUND {
            warn(storing.put_records(|_| true));
            put = Instant::now();
        }
        if Instant::now() >= sweep_at {
            warn(storing.store.sweep(&storing.bounds, crate::job::wall_now()));
            sweep_at = Instant::now() + SWEEP;
        }
    }
}

fn warn(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "the store");
    }
}
