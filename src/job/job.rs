//! A job: its specification and its log. Events are stored before they are shown, and readers
//! wait for states of the log.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::archive::{Archive, Coverage};
use super::caller::Caller;
use super::cursors::Cursors;
use super::id::{JobId, Nonce};
use super::outcome::Outcome;
use super::pacing::Pacing;
use super::reach::HostReach;
use super::spec::{JobSpec, Pace};
use crate::job::fleet::Fleet;
use crate::job::log::{Batch, Change, Log, LogEvent, OutputStore, Pending, Status};
use crate::job::shell::ProcessGroup;
use crate::lock::{Held, lock};
use crate::output::{LineNo, Measure, RingLimits, Selection, Stream, Timestamp};

/// One run of one command on a host: its specification, and its log in a `watch`.
pub struct Job {
    /// The job's id.
    pub id: JobId,
    /// The job's specification.
    pub spec: JobSpec,
    /// Identifies its processes on the host.
    pub mark: Nonce,
    /// Owner of the job.
    pub caller: Caller,
    /// Cursors of readers that don't keep their own.
    pub cursors: Cursors,
    /// Its members, if it is a fleet.
    pub fleet: Option<Fleet>,
    log: watch::Sender<Log>,
    /// Makes the far end wait for the follower, if requested.
    pacing: Option<Pacing>,
    storage: OnceLock<Storage>,
    /// Why its output is not stored, if it should be.
    trouble: Mutex<Option<String>>,
    /// Whether the host of a durable job can be reached.
    reach: HostReach,
    /// The end was recorded. The log shows it once it is stored.
    has_ended: AtomicBool,
    /// The store knows that the record is out of date. Cleared when the record is written.
    is_changed: AtomicBool,
    /// Number of completed rounds of copying what another process stores. A round ends when nothing
    /// is left to copy.
    mirror_rounds: watch::Sender<u64>,
}

/// Result of waiting for a line that another process may have shown already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The line has arrived, or the job has ended.
    Here,
    /// No process has shown the line: it does not exist yet.
    NeverShown,
    /// Another process may have shown the line, and it did not arrive in time.
    NotYet,
}

/// Prefix of a fleet's id.
const FLEET: &str = "fleet";

/// Where a job's output is stored.
#[derive(Clone)]
pub struct Storage {
    /// Stores the output. `None` if another process stores it, or all of it is stored.
    pub output_store: Option<Arc<dyn OutputStore>>,
    /// Reads the stored output.
    pub archive: Arc<dyn Archive>,
    pending: Arc<Mutex<Pending>>,
}

impl Storage {
    /// Output that is read from `archive` and written by `output_store`.
    pub fn new(archive: Arc<dyn Archive>, output_store: Option<Arc<dyn OutputStore>>) -> Self {
        Self {
            output_store,
            archive,
            pending: Arc::default(),
        }
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
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// Whether the job has ended and this chunk reaches the end of both streams.
    pub at_end: bool,
}

/// The next raw bytes of one stream of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position after them.
    pub end: u64,
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// Whether the job has ended and this piece reaches the end of the stream.
    pub at_end: bool,
}

impl Job {
    /// A job that starts now.
    pub fn new(caller: Caller, spec: JobSpec, limits: RingLimits) -> Self {
        let named = if spec.fleet.is_some() {
            FLEET
        } else {
            &spec.host
        };
        let id = JobId::new(named);
        let log = Log::new(limits);
        Self::begun(
            Identity {
                id,
                mark: Nonce::new(),
                caller,
            },
            spec,
            log,
        )
    }

    /// A job that was started earlier.
    pub fn begun(identity: Identity, spec: JobSpec, log: Log) -> Self {
        let Identity { id, mark, caller } = identity;
        let pacing = (spec.pace == Pace::OfFollower).then(Pacing::default);
        let mut log = log;
        log.set_terminal(spec.terminal.is_some());
        let log = watch::Sender::new(log);
        let cursors = Cursors::default();
        let storage = OnceLock::new();
        let trouble = Mutex::default();
        let fleet = spec.fleet.as_ref().map(Fleet::new);
        let has_ended = AtomicBool::new(false);
        let mirror_rounds = watch::Sender::new(0);
        Self {
            id,
            spec,
            mark,
            caller,
            cursors,
            fleet,
            log,
            pacing,
            storage,
            trouble,
            reach: HostReach::default(),
            has_ended,
            is_changed: AtomicBool::new(false),
            mirror_rounds,
        }
    }

    /// Stores its output from now on. Only the first call has an effect.
    pub fn store_in(&self, storage: Storage) {
        self.storage.get_or_init(|| storage);
    }

    /// Sets why its output is not stored; `None` if it is.
    pub fn note_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }

    /// The log, to wait for changes.
    pub(super) fn watch(&self) -> watch::Receiver<Log> {
        self.log.subscribe()
    }

    /// Waits until `reached` returns true, at most for `patience`, and returns the job's status.
    pub async fn wait_for(&self, patience: Duration, reached: impl Fn(&Log) -> bool) -> Status {
        let mut log = self.log.subscribe();
        // However the wait ends, the log holds the answer.
        drop(
            tokio::time::timeout(
                patience,
                log.wait_for(|log: &Log| under_log_lock(|| reached(log))),
            )
            .await,
        );
        self.status()
    }

    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.read_log(|log| log.outcome().is_some())
    }

    /// Whether the end of the job is known. Readers may not see it yet: it is shown once it is
    /// stored.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || self.is_over()
    }

    /// Waits until this process shows a line that a reader has seen at another process, at most for
    /// `patience`.
    ///
    /// A process shows a line once it is stored, and other processes find it in the store a moment
    /// later. So a cursor may be ahead of this process. Only if the store does not have the line
    /// either, no process has ever shown it.
    pub async fn reached(&self, line: LineNo, patience: Duration) -> Reached {
        let is_here = |log: &Log| log.ring().newest() >= line || log.outcome().is_some();
        let Some(storage) = self.storage.get() else {
            return if self.read_log(is_here) {
                Reached::Here
            } else {
                Reached::NeverShown
            };
        };
        let is_mirrored = storage.output_store.is_none();
        if is_mirrored {
            let mut rounds = self.mirror_rounds.subscribe();
            // The current round may have started before the line was stored.
            let whole_round = *rounds.borrow() + 2;
            tokio::select! {
                _ = self.wait_for(patience, is_here) => {}
                _ = rounds.wait_for(|rounds| *rounds >= whole_round) => {
                    return if self.read_log(is_here) { Reached::Here } else { Reached::NeverShown };
                }
            }
            return if self.read_log(is_here) {
                Reached::Here
            } else {
                Reached::NotYet
            };
        }
        // A line is in the store before it is shown here, so another process may show it first.
        let is_in_flight = lock(&storage.pending).is_in_flight();
        if is_in_flight {
            self.wait_for(patience, is_here).await;
        }
        if self.read_log(is_here) {
            Reached::Here
        } else {
            Reached::NeverShown
        }
    }

    /// Notes the end of a round of copying: everything that another process has stored so far is
    /// copied.
    pub fn note_mirror_round(&self) {
        self.mirror_rounds.send_modify(|rounds| *rounds += 1);
    }

    /// Waits until the job has ended, at most for `patience`. Returns whether it has.
    pub async fn over_within(&self, patience: Duration) -> bool {
        self.wait_for(patience, |log| log.outcome().is_some()).await;
        self.is_over()
    }

    /// Waits until the job has ended and returns its outcome. Cancel safe.
    pub async fn outcome(&self) -> Outcome {
        let mut log = self.log.subscribe();
        let log = log.wait_for(|log| log.outcome().is_some()).await.expect("a job owns its log");
        log.outcome().cloned().expect("it was waited for")
    }

    /// Waits for raw bytes after `positions`, advances these, and returns the bytes: exact,
    /// including unfinished lines.
    ///
    /// Cancelling loses nothing.
    pub async fn follow(&self, positions: &mut Positions) -> Chunk {
        if let Some(pacing) = &self.pacing {
            // Not at the end: only the next call shows that the follower has used the last chunk.
            pacing.note_taken(positions.stdout + positions.stderr);
        }
        let mut log = self.log.subscribe();
        let waited = log.wait_for(|log| {
            log.outcome().is_some()
                || log.ring().total_bytes(Stream::Stdout) > positions.stdout
                || log.ring().total_bytes(Stream::Stderr) > positions.stderr
        });
        // Dropped at once: the guard is a read lock, and the reads below lock the log again.
        drop(waited.await.expect("a job owns its log"));
        let stdout = self.raw_bytes(Stream::Stdout, positions.stdout).await;
        let stderr = self.raw_bytes(Stream::Stderr, positions.stderr).await;

        // No await from here: a caller that drops this future has moved neither position, and reads
        // the same bytes again.
        let dropped_bytes =
            stdout.dropped_after(positions.stdout) + stderr.dropped_after(positions.stderr);
        positions.stdout = stdout.end();
        positions.stderr = stderr.end();
        // Outcome and totals under one lock: output that came after the reads above is not lost.
        let at_end = self.read_log(|log| {
            log.outcome().is_some()
                && log.ring().total_bytes(Stream::Stdout) == positions.stdout
                && log.ring().total_bytes(Stream::Stderr) == positions.stderr
        });
        Chunk {
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            dropped_bytes,
            at_end,
        }
    }

    /// Waits for bytes of one stream after `position`, or the end of the job, and returns the
    /// available ones: exact, including unfinished lines. No far end waits for such a reader.
    /// Cancel safe.
    pub async fn stream_piece(&self, stream: Stream, position: u64) -> Piece {
        let mut log = self.log.subscribe();
        drop(
            log.wait_for(|log: &Log| {
                log.outcome().is_some() || log.ring().total_bytes(stream) > position
            })
            .await
            .expect("a job owns its log"),
        );
        let read = self.raw_bytes(stream, position).await;
        let dropped_bytes = read.dropped_after(position);
        // A position after the end of the stream stays where it is.
        let end = read.end().max(position);
        let at_end =
            self.read_log(|log| log.outcome().is_some() && log.ring().total_bytes(stream) <= end);
        Piece {
            bytes: read.bytes,
            end,
            dropped_bytes,
            at_end,
        }
    }

    /// Notes that the follower of a job [`Pace::OfFollower`] has read its lines up to this one.
    pub fn note_taken(&self, line_no: LineNo) {
        if let Some(pacing) = &self.pacing {
            pacing.note_taken(
                self.read_log(|log| log.ring().extent(line_no, Selection::Both, Measure::Bytes)),
            );
        }
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] is so far behind that no more output
    /// should be received. Cancel safe.
    pub async fn wait_until_ahead(&self) {
        match &self.pacing {
            Some(pacing) => pacing.wait_until_ahead().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] has caught up enough that more output
    /// can be received. Cancel safe.
    pub async fn wait_for_room(&self) {
        if let Some(pacing) = &self.pacing {
            pacing.wait_for_room().await;
        }
    }

    /// Whether the far end must be held back now.
    pub fn is_held(&self) -> bool {
        self.pacing.as_ref().is_some_and(Pacing::is_ahead)
    }

    /// Stops waiting for the follower: from here on output is received as it arrives.
    pub fn stop_pacing(&self) {
        if let Some(pacing) = &self.pacing {
            pacing.stop_pacing();
        }
    }

    /// The current status of the job.
    pub fn status(&self) -> Status {
        // Before the log is locked: the archive takes a lock of its own.
        let coverage = self.coverage();
        let status = self.read_log(|log| log.status(coverage.as_ref()));
        self.with_troubles(status)
    }

    /// Notes whether the host of a durable job is reachable.
    pub fn note_reach(&self, is_reached: bool) {
        self.reach.note(is_reached);
    }

    /// Waits until the host of a durable job has delivered its output so far. Gives up once the
    /// host has been unreachable for `patience`.
    pub async fn caught_up(&self, patience: Duration) {
        tokio::select! {
            () = self.reach.wait_until_reached(patience) => {}
            _ = self.wait_for(patience, |log| log.outcome().is_some()) => {}
        }
    }

    pub(super) fn with_troubles(&self, status: Status) -> Status {
        let lost_for = self.reach.lost_for();
        Status {
            unstored: self.trouble(),
            disconnected: if status.ended_at.is_none() {
                lost_for
            } else {
                None
            },
            ..status
        }
    }

    fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// The stored range of its output.
    pub fn coverage(&self) -> Option<Coverage> {
        self.storage.get().map(|storage| storage.archive.coverage())
    }

    pub(super) fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.storage.get().map(|storage| &storage.archive)
    }

    /// Time since the job ended, if it has.
    pub fn ended_for(&self) -> Option<Duration> {
        self.read_log(Log::ended_for)
    }

    /// The job's process group on its host, once the host has reported it.
    pub fn process_group(&self) -> Option<ProcessGroup> {
        let (pgid, age) = self.read_log(|log| Some((log.pgid()?, log.age())))?;
        Some(ProcessGroup {
            pgid,
            mark: self.mark.clone(),
            age,
        })
    }

    /// Identifies the job's processes by their mark alone.
    pub fn marked(&self) -> ProcessGroup {
        ProcessGroup {
            // Never used: a search with `Reach::Marked` ignores the process group.
            pgid: 0,
            mark: self.mark.clone(),
            age: self.read_log(Log::age),
        }
    }

    /// Calls `look` with the log.
    ///
    /// `look` runs under the lock of the log and must not lock a log again: a writer that waits
    /// between the two locks would stop both for ever. Debug builds panic.
    pub fn read_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        // Before the lock is taken: a second lock by this thread must panic, not wait for ever.
        let _held = Held::new(LOG_LOCK);
        let log = self.log.borrow();
        look(&log)
    }

    /// Applies changes that happened at `now`, and wakes all readers. Changes that are to be stored
    /// are shown once they are.
    pub fn record(&self, changes: Vec<Change>, now: Instant) {
        let mut at_once = Vec::new();
        for change in changes {
            if let (Some(pacing), Change::Append(_, bytes)) = (&self.pacing, &change) {
                pacing.note_arrived(bytes.len());
            }
            match (change, self.storage.get()) {
                (Change::Append(source, bytes), Some(_)) => {
                    self.keep(LogEvent::Append(source, bytes), now);
                }
                (Change::FinishStreams, Some(_)) => self.keep(LogEvent::FinishStreams, now),
                // These are not stored, so they may overtake pending output. That is harmless:
                // output also marks the job as running.
                (change, _) => at_once.push(change),
            }
        }
        if !at_once.is_empty() {
            self.write_log(|log| at_once.iter().for_each(|change| log.apply(change, now)));
        }
    }

    /// Ends the job. Later calls change nothing.
    pub fn end(&self, outcome: Outcome) {
        // The log shows the end only after it is stored, which a slow disk delays.
        self.has_ended.store(true, Ordering::Relaxed);
        self.keep(LogEvent::End(outcome), Instant::now());
    }

    /// Shows an event once it is stored; immediately if the job is not stored.
    fn keep(&self, event: LogEvent, now: Instant) {
        let kept = self
            .storage
            .get()
            .and_then(|storage| Some((storage, storage.output_store.as_ref()?)));
        let Some((storage, output_store)) = kept else {
            self.write_log(|log| log.take(&event, log.time_at(now), now));
            return;
        };
        let mut pending = lock(&storage.pending);
        let before = pending.bytes;
        let is_first = pending.push(event, now);
        let is_too_much = output_store.account(weight(pending.bytes - before));
        // All jobs share one limit. It may be reached while the queue of this job is short.
        if is_too_much || pending.is_too_long() {
            self.show_unstored(&mut pending, &**output_store);
        }
        drop(pending);
        if is_first {
            // One call is enough: the store's thread takes batches until the queue is empty.
            output_store.notify(&self.id);
        }
    }

    /// Shows all pending output if the oldest has waited longer than `patience`, so that a hung
    /// disk does not hide it. It counts as not stored. Returns whether any was overdue.
    pub fn show_overdue(&self, patience: Duration) -> bool {
        let kept = self
            .storage
            .get()
            .and_then(|storage| Some((storage, storage.output_store.as_ref()?)));
        let Some((storage, output_store)) = kept else { return false };
        let mut pending = lock(&storage.pending);
        let is_overdue = pending.oldest().is_some_and(|oldest| oldest.elapsed() > patience);
        if is_overdue {
            self.show_unstored(&mut pending, &**output_store);
        }
        is_overdue
    }

    fn show_unstored(&self, pending: &mut Pending, output_store: &dyn OutputStore) {
        let freed = weight(pending.bytes);
        output_store.account(-freed);
        // The queue stays locked, so that no later event is shown before these.
        self.write_log(|log| {
            pending.skip(|event, now| {
                log.take(event, log.time_at(now), now);
                log.ring().newest()
            });
        });
    }

    /// Waits until the store has nearly caught up, at most for `patience`. For far ends that keep
    /// their output. Cancel safe.
    pub async fn store_caught_up(&self, patience: Duration) {
        let Some(storage) = self.storage.get() else { return };
        let mut log = self.log.subscribe();
        let up = async {
            log.mark_unchanged();
            // Events leave the queue only when they are shown, so each step also changes the log.
            while lock(&storage.pending).is_long() {
                log.changed().await.expect("a job owns its log");
            }
        };
        // Output that is still not stored is shown anyway.
        drop(tokio::time::timeout(patience, up).await);
    }

    /// The next output to store, about `most` bytes; `None` if none is pending. The batch has a
    /// checkpoint if the caller `wants_checkpoint`, or if earlier output was not stored. Call
    /// [`show`](Self::show) before taking the next batch.
    pub fn take_batch(&self, most: usize, wants_checkpoint: bool) -> Option<Arc<Batch>> {
        let mut pending = lock(&self.storage.get()?.pending);
        // The queue stays locked: nothing is shown between the checkpoint and its batch, so the
        // checkpoint is the log right before these events.
        let _held = Held::new(LOG_LOCK);
        let log = self.log.borrow();
        pending.take(
            most,
            |now| log.time_at(now),
            |has_gap: bool| (has_gap || wants_checkpoint).then(|| log.ring().checkpoint()),
        )
    }

    /// Shows a batch after the attempt to store it. A batch that was overdue, or for which there
    /// was no room, is shown already.
    ///
    /// Returns the newest line that is stored now. `None` if the batch was not stored.
    pub fn show(&self, batch: &Arc<Batch>, is_stored: bool) -> Option<LineNo> {
        let storage = self.storage.get()?;
        let mut pending = lock(&storage.pending);
        let before = pending.bytes;
        // `show_unstored` has shown an overtaken batch. Here only its newest line is needed.
        let mut newest = pending.take_overtaken(batch);
        // Events after an overtaken batch may never be stored. Then the trouble remains.
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
                batch.events.iter().for_each(|(event, at, now)| log.take(event, *at, *now));
                log.ring().newest()
            }));
        }
        if let Some(output_store) = &storage.output_store {
            // Zero for an overtaken batch: `show_unstored` has subtracted its bytes.
            output_store.account(-weight(before - pending.bytes));
        }
        if is_stored { newest } else { None }
    }

    /// Applies an event that another process has stored.
    pub fn mirror(&self, event: &LogEvent, at: Timestamp) {
        self.write_log(|log| log.take(event, at, Instant::now()));
    }

    /// Evicts the oldest output until at most `bytes` are kept.
    pub fn trim(&self, bytes: usize) {
        self.write_log(|log| log.ring_mut().trim(bytes));
    }

    fn write_log<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let mut result = None;
        {
            let _held = Held::new(LOG_LOCK);
            self.log.send_modify(|log| result = Some(change(log)));
        }
        // After the change: a record that clears an earlier mark could miss the change.
        self.note_change();
        result.expect("send_modify calls its argument")
    }

    /// Marks its record as out of date.
    pub fn note_change(&self) {
        let Some(output_store) =
            self.storage.get().and_then(|storage| storage.output_store.as_ref())
        else {
            return;
        };
        if !self.is_changed.swap(true, Ordering::AcqRel) {
            output_store.note_change(&self.id);
        }
    }

    /// Clears the mark of [`note_change`](Self::note_change). Call it before reading the job, so
    /// that later changes set it again.
    pub fn take_changed(&self) {
        self.is_changed.store(false, Ordering::Release);
    }

    /// Deletes the finished lines of the selected streams. Returns the number of lines and bytes
    /// deleted.
    pub async fn forget_output(&self, selection: Selection) -> (u64, u64) {
        let coverage = self.coverage().unwrap_or_default();
        let kept = |log: &Log, measure| {
            Stream::ALL
                .into_iter()
                .filter(|&stream| selection.contains(stream))
                .map(|stream| {
                    let end =
                        log.ring().extent(log.ring().newest(), Selection::Only(stream), measure);
                    end.saturating_sub(coverage.available_from(log.ring(), stream, measure))
                })
                .sum::<u64>()
        };
        // Counted under the lock that deletes, so that a line that ends meanwhile is not counted.
        let (gone, newest) = self.write_log(|log| {
            let gone = (kept(log, Measure::Lines), kept(log, Measure::Bytes));
            log.ring_mut().forget(selection);
            (gone, log.ring().newest())
        });
        // Up to `newest`, because later lines arrived after the ring was cleared.
        if let Some(archive) = self.archive().cloned() {
            let forgetting = tokio::task::spawn_blocking(move || archive.forget(selection, newest));
            forgetting.await.expect("forgetting does not panic");
        }
        gone
    }
}

/// Name of the lock of a job's log, for the order of locks that debug builds check.
const LOG_LOCK: &str = "a job's log";

/// Runs a closure that the `watch` of the log calls under its lock.
fn under_log_lock<T>(closure: impl FnOnce() -> T) -> T {
    let _held = Held::new(LOG_LOCK);
    closure()
}

fn weight(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Values that distinguish a job from all others.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job's id.
    pub id: JobId,
    /// Identifies its processes on the host.
    pub mark: Nonce,
    /// Owner of the job.
    pub caller: Caller,
}
