use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::pacing::Pacing;
use super::pending::Pending;
use super::{
    Archive, Batch, Caller, Change, Coverage, Cursors, Fleet, JobId, JobSpec, Keeper, Log, LogEvent, Nonce,
    Outcome, Pace, ProcessGroup, Status,
};
use crate::lock::lock;
use crate::output::{LineNo, Render, RingLimits, Selection, Stream, Timestamp, Unit};

/// One run of one command on a host: its spec, and its log in a watch.
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What was asked for.
    pub spec: JobSpec,
    /// What marks its processes on the host.
    pub mark: Nonce,
    /// Whose it is.
    pub caller: Caller,
    /// The cursors of readers that keep none.
    pub cursors: Cursors,
    /// Its members, when it is a fleet.
    pub fleet: Option<Fleet>,
    log: watch::Sender<Log>,
    /// Lets the far end wait for the follower, if it should.
    pacing: Option<Pacing>,
    storage: OnceLock<Storage>,
    /// Why its output is not stored, when it should be.
    trouble: Mutex<Option<String>>,
    /// Since when the host of a durable job is out of reach.
    disconnected: Mutex<Option<Instant>>,
}

/// What the id of a fleet begins with.
const FLEET: &str = "fleet";

/// How a job's output is stored.
#[derive(Clone)]
pub struct Storage {
    /// Who stores it; nobody when it is stored elsewhere, or all is.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Where it can be read.
    pub archive: Arc<dyn Archive>,
    pending: Arc<Mutex<Pending>>,
}

impl Storage {
    /// Output that is read from `archive`, and written there by `keeper`.
    pub fn new(archive: Arc<dyn Archive>, keeper: Option<Arc<dyn Keeper>>) -> Self {
        Self { keeper, archive, pending: Arc::default() }
    }
}

/// Positions of a reader of raw bytes, one for each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Bytes read of stdout.
    pub stdout: u64,
    /// Bytes read of stderr.
    pub stderr: u64,
}

/// The next raw bytes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Bytes of stdout.
    pub stdout: Vec<u8>,
    /// Bytes of stderr.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before this reader came for them.
    pub dropped_bytes: u64,
    /// Whether the job is over and this chunk reaches the end of both streams.
    pub at_end: bool,
}

/// The next raw bytes of one stream of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position behind them.
    pub end: u64,
    /// Bytes that were gone before this reader came for them.
    pub dropped_bytes: u64,
    /// Whether the job is over and this reaches the end of the stream.
    pub at_end: bool,
}

impl Job {
    /// A job that starts now.
    pub fn new(caller: Caller, spec: JobSpec, limits: RingLimits) -> Self {
        let named = if spec.fleet.is_some() { FLEET } else { &spec.host };
        let (id, log) = (JobId::new(named), Log::new(limits));
        Self::begun(Identity { id, mark: Nonce::new(), caller }, spec, log)
    }

    /// A job that was begun earlier.
    pub fn begun(identity: Identity, spec: JobSpec, log: Log) -> Self {
        let Identity { id, mark, caller } = identity;
        let pacing = (spec.pace == Pace::OfFollower).then(Pacing::default);
        let log = watch::Sender::new(log);
        let (cursors, storage, trouble, disconnected) = Default::default();
        let fleet = spec.fleet.as_ref().map(Fleet::new);
        Self { id, spec, mark, caller, cursors, fleet, log, pacing, storage, trouble, disconnected }
    }

    /// From now on its output is stored. Only the first call counts.
    pub fn store_in(&self, storage: Storage) {
        self.storage.get_or_init(|| storage);
    }

    /// Takes note of why its output is not stored; none when it is.
    pub fn note_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }

    /// The log, to wait for changes of it.
    pub(super) fn watch(&self) -> watch::Receiver<Log> {
        self.log.subscribe()
    }

    /// Waits until the job has come as far as `reached` says, or patience runs out, and returns its status.
    pub async fn wait_for(&self, patience: Duration, reached: impl Fn(&Log) -> bool) -> Status {
        let mut log = self.log.subscribe();
        // However the wait ends, the log holds the answer.
        drop(tokio::time::timeout(patience, log.wait_for(|log| reached(log))).await);
        self.status()
    }

    /// Whether the job is over.
    pub fn is_over(&self) -> bool {
        self.log.borrow().outcome().is_some()
    }

    /// Waits until the job is over; true when that came within `patience`.
    pub async fn over_within(&self, patience: Duration) -> bool {
        self.wait_for(patience, |log| log.outcome().is_some()).await;
        self.is_over()
    }

    /// Waits until the job is over, and tells what became of it. Cancel safe.
    pub async fn outcome(&self) -> Outcome {
        let mut log = self.log.subscribe();
        let log = log.wait_for(|log| log.outcome().is_some()).await.expect("a job owns its log");
        log.outcome().cloned().expect("it was waited for")
    }

    /// Waits for raw bytes behind `positions`, moves these on, and returns the bytes: exact, unfinished lines included.
    ///
    /// Cancelling loses nothing.
    pub async fn follow(&self, positions: &mut Positions) -> Chunk {
        if let Some(pacing) = &self.pacing {
            pacing.note_taken(positions.stdout + positions.stderr);
        }
        let mut log = self.log.subscribe();
        let waited = log.wait_for(|log| {
            log.outcome().is_some()
                || log.ring().total_bytes(Stream::Stdout) > positions.stdout
                || log.ring().total_bytes(Stream::Stderr) > positions.stderr
        });
        drop(waited.await.expect("a job owns its log"));
        let mut chunk = Chunk::default();
        chunk.stdout = self.bytes_at(Stream::Stdout, &mut positions.stdout, &mut chunk.dropped_bytes).await;
        chunk.stderr = self.bytes_at(Stream::Stderr, &mut positions.stderr, &mut chunk.dropped_bytes).await;
        chunk.at_end = self.read_log(|log| {
            log.outcome().is_some()
                && log.ring().total_bytes(Stream::Stdout) == positions.stdout
                && log.ring().total_bytes(Stream::Stderr) == positions.stderr
        });
        chunk
    }

    /// Waits for bytes of one stream behind `position`, or the end of the job, and returns what is there: exact, unfinished lines
    /// included. No far end waits for whoever reads so. Cancel safe.
    pub async fn stream_piece(&self, stream: Stream, position: u64) -> Piece {
        let mut log = self.log.subscribe();
        let has_news = |log: &Log| log.outcome().is_some() || log.ring().total_bytes(stream) > position;
        drop(log.wait_for(has_news).await.expect("a job owns its log"));
        let mut piece = Piece { end: position, ..Piece::default() };
        piece.bytes = self.bytes_at(stream, &mut piece.end, &mut piece.dropped_bytes).await;
        piece.at_end =
            self.read_log(|log| log.outcome().is_some() && log.ring().total_bytes(stream) <= piece.end);
        piece
    }

    /// The follower of a job [`Pace::OfFollower`] has taken its lines up to this one.
    pub fn note_taken(&self, line_no: LineNo) {
        if let Some(pacing) = &self.pacing {
            let raw = (Unit::Bytes, Render::Raw);
            pacing.note_taken(self.read_log(|log| log.ring().extent(line_no, Selection::Both, raw)));
        }
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] is so far behind that no more output should be taken. Cancel safe.
    pub async fn runs_ahead(&self) {
        match &self.pacing {
            Some(pacing) => pacing.runs_ahead().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] is near enough that more output can be taken. Cancel safe.
    pub async fn has_room(&self) {
        if let Some(pacing) = &self.pacing {
            pacing.has_room().await;
        }
    }

    /// Whether the far end is to be held back now.
    pub fn is_held(&self) -> bool {
        self.pacing.as_ref().is_some_and(Pacing::is_ahead)
    }

    /// Stops waiting for the follower: from here on output is taken as it comes.
    pub fn let_go(&self) {
        if let Some(pacing) = &self.pacing {
            pacing.let_go();
        }
    }

    /// The job at this moment.
    pub fn status(&self) -> Status {
        let coverage = self.coverage();
        let status = self.read_log(|log| log.status(coverage.as_ref()));
        self.with_troubles(status)
    }

    /// The host of a durable job is out of reach, or no longer.
    pub fn note_reach(&self, is_reached: bool) {
        let mut disconnected = lock(&self.disconnected);
        *disconnected = if is_reached { None } else { Some(disconnected.unwrap_or_else(Instant::now)) };
    }

    /// Waits until the host of a durable job has told all that there was, if it has not been out of reach for `patience` already.
    pub async fn caught_up(&self, patience: Duration) {
        let is_behind = || lock(&self.disconnected).is_some_and(|since| since.elapsed() < patience);
        while is_behind() && !self.is_over() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn with_troubles(&self, status: Status) -> Status {
        let disconnected = lock(&self.disconnected).filter(|_| status.ended_at.is_none());
        Status { unstored: self.trouble(), disconnected: disconnected.map(|since| since.elapsed()), ..status }
    }

    fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// What of its output is stored.
    pub fn coverage(&self) -> Option<Coverage> {
        self.storage.get().map(|storage| storage.archive.coverage())
    }

    pub(super) fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.storage.get().map(|storage| &storage.archive)
    }

    /// Time since the job ended, when it has.
    pub fn ended_for(&self) -> Option<Duration> {
        self.log.borrow().ended_for()
    }

    /// Where the job lives on its host, once the host has told.
    pub fn process_group(&self) -> Option<ProcessGroup> {
        let (pgid, age) = self.read_log(|log| Some((log.pgid()?, log.age())))?;
        Some(ProcessGroup { pgid, mark: self.mark.clone(), age })
    }

    /// What finds the job's processes by their mark alone.
    pub fn marked(&self) -> ProcessGroup {
        ProcessGroup { pgid: 0, mark: self.mark.clone(), age: self.read_log(Log::age) }
    }

    /// Reads the log.
    pub fn read_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.borrow())
    }

    /// Makes changes that happened at `now`, and tells everyone who waits. What is to be stored is shown when it is.
    pub fn record(&self, changes: Vec<Change>, now: Instant) {
        let mut at_once = Vec::new();
        for change in changes {
            if let (Some(pacing), Change::Append(_, bytes)) = (&self.pacing, &change) {
                pacing.note_arrived(bytes.len());
            }
            match (change, self.storage.get()) {
                (Change::Append(stream, bytes), Some(_)) => {
                    self.keep(LogEvent::Append(stream, bytes), now);
                }
                (Change::FinishStreams, Some(_)) => self.keep(LogEvent::FinishStreams, now),
                (change, _) => at_once.push(change),
            }
        }
        if !at_once.is_empty() {
            self.write_log(|log| at_once.iter().for_each(|change| log.apply(change, now)));
        }
    }

    /// The job is over. Later calls change nothing.
    pub fn end(&self, outcome: Outcome) {
        self.keep(LogEvent::End(outcome), Instant::now());
    }

    /// Shows an event once it is stored; at once where nothing is.
    fn keep(&self, event: LogEvent, now: Instant) {
        let kept = self.storage.get().and_then(|storage| Some((storage, storage.keeper.as_ref()?)));
        let Some((storage, keeper)) = kept else {
            self.write_log(|log| log.take(&event, (log.time_at(now), now)));
            return;
        };
        let mut pending = lock(&storage.pending);
        let before = pending.bytes;
        let is_first = pending.push(event, now);
        let is_too_much = keeper.weigh(weight(pending.bytes - before));
        if is_too_much || pending.is_too_long() {
            self.show_unstored(&mut pending, &**keeper);
        }
        drop(pending);
        if is_first {
            keeper.call(&self.id);
        }
    }

    /// Shows output that has waited for longer than `patience` to be stored, so that a hung disk does not hide it. It counts as not
    /// stored. Returns whether there was any.
    pub fn show_overdue(&self, patience: Duration) -> bool {
        let kept = self.storage.get().and_then(|storage| Some((storage, storage.keeper.as_ref()?)));
        let Some((storage, keeper)) = kept else { return false };
        let mut pending = lock(&storage.pending);
        let is_overdue = pending.oldest().is_some_and(|oldest| oldest.elapsed() > patience);
        if is_overdue {
            self.show_unstored(&mut pending, &**keeper);
        }
        is_overdue
    }

    fn show_unstored(&self, pending: &mut Pending, keeper: &dyn Keeper) {
        let freed = weight(pending.bytes);
        keeper.weigh(-freed);
        self.write_log(|log| {
            pending.skip(|event, now| {
                log.take(event, (log.time_at(now), now));
                log.ring().newest()
            });
        });
    }

    /// Waits until the store has nearly caught up, for `patience` at most. For far ends that keep their output. Cancel safe.
    pub async fn stored_up(&self, patience: Duration) {
        let Some(storage) = self.storage.get() else { return };
        let mut log = self.log.subscribe();
        let up = async {
            log.mark_unchanged();
            while lock(&storage.pending).is_long() {
                log.changed().await.expect("a job owns its log");
            }
        };
        // Output that is still not stored is shown all the same.
        drop(tokio::time::timeout(patience, up).await);
    }

    /// The next output to be stored, `most` bytes of it, about; none when none waits. With a checkpoint if it `wants_checkpoint`, or
    /// if something before it was not stored. [`show`](Self::show) it before taking the next.
    pub fn take_batch(&self, most: usize, wants_checkpoint: bool) -> Option<Arc<Batch>> {
        let mut pending = lock(&self.storage.get()?.pending);
        let log = self.log.borrow();
        let checkpoint = |has_gap: bool| (has_gap || wants_checkpoint).then(|| log.ring().checkpoint());
        pending.take(most, |now| log.time_at(now), checkpoint)
    }

    /// Shows a batch, and notes whether it is stored. One that has waited for too long was shown already.
    ///
    /// Returns the newest line that is stored then, if that is known.
    pub fn show(&self, batch: &Arc<Batch>, is_stored: bool) -> Option<LineNo> {
        let storage = self.storage.get()?;
        let mut pending = lock(&storage.pending);
        let (before, mut newest) = (pending.bytes, pending.take_overtaken(batch));
        if is_stored && newest.is_some() && !pending.has_skipped() {
            self.note_trouble(None);
        }
        if !is_stored {
            pending.note_unstored();
        }
        if pending.is_to_be_shown(batch) {
            if is_stored {
                self.note_trouble(None);
            }
            newest = Some(self.write_log(|log| {
                batch.events.iter().for_each(|(event, at, now)| log.take(event, (*at, *now)));
                log.ring().newest()
            }));
        }
        if let Some(keeper) = &storage.keeper {
            keeper.weigh(-weight(before - pending.bytes));
        }
        newest.filter(|_| is_stored)
    }

    /// Makes what another process has stored.
    pub fn mirror(&self, event: &LogEvent, at: Timestamp) {
        self.write_log(|log| log.take(event, (at, Instant::now())));
    }

    /// Evicts the oldest output until at most `bytes` are kept.
    pub fn trim(&self, bytes: usize) {
        self.write_log(|log| log.ring_mut().trim(bytes));
    }

    fn write_log<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let mut result = None;
        self.log.send_modify(|log| result = Some(change(log)));
        result.expect("send_modify calls its argument")
    }

    /// Forgets the finished lines of the selected streams; returns how many lines and bytes went.
    pub async fn forget_output(&self, selection: Selection) -> (u64, u64) {
        let coverage = self.coverage().unwrap_or_default();
        let kept = |log: &Log, unit| {
            let of = |stream| {
                let end =
                    log.ring().extent(log.ring().newest(), Selection::Only(stream), (unit, Render::Raw));
                end.saturating_sub(coverage.available_from(log.ring(), stream, (unit, Render::Raw)))
            };
            Stream::ALL.into_iter().filter(|&stream| selection.contains(stream)).map(of).sum::<u64>()
        };
        let (gone, newest) = self.write_log(|log| {
            let gone = (kept(log, Unit::Lines), kept(log, Unit::Bytes));
            log.ring_mut().forget(selection);
            (gone, log.ring().newest())
        });
        if let Some(archive) = self.archive().cloned() {
            let forgetting = tokio::task::spawn_blocking(move || archive.forget(selection, newest));
            forgetting.await.expect("forgetting does not panic");
        }
        gone
    }
}

fn weight(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What tells a job from all others.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub id: JobId,
    /// What marks its processes on the host.
    pub mark: Nonce,
    /// Whose it is.
    pub caller: Caller,
}
