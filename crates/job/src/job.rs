//! A job: its specification and its log. Events are stored before they are shown, and readers
//! wait for states of the log.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::caller::Caller;
use super::cursors::Cursors;
use super::end_cause::SignalNote;
use super::id::{JobId, Nonce};
use super::outcome::Outcome;
use super::pacing::Pacing;
use super::reach::HostReach;
use super::signal::Kill;
use super::spec::{JobSpec, Pace, Terminal};
use crate::fleet::Fleet;
use crate::keeping::Storage;
use crate::log::{Log, LogChange, LogEvent, Scrubbed, Scrubbing, Status};
use crate::shell::ProcessGroup;
use sshjobs_base::lock::Held;
use sshjobs_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_output::scrub::{HiddenSecret, Scrubber};
use sshjobs_output::{LineNo, Measure, Resize, RingLimits, Selection, Stream, TerminalSize};

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
    pub(super) log: watch::Sender<Log>,
    /// Makes the far end wait for the follower, if requested.
    pub(super) pacing: Option<Pacing>,
    pub(super) storage: OnceLock<Storage>,
    /// Why its output is not stored, if it should be.
    pub(super) trouble: Mutex<Option<String>>,
    /// Whether the output of another process's job can't be read from the store.
    pub(super) is_stale: AtomicBool,
    /// Changes of its terminal's size, oldest first.
    resizes: Mutex<Vec<Resize>>,
    /// Whether the host of a durable job can be reached.
    pub(super) reach: HostReach,
    /// Bytes that the host of a durable job had delivered when it had last delivered all.
    delivered: AtomicU64,
    /// The end was recorded. The log shows it once it is stored.
    pub(super) has_ended: AtomicBool,
    /// Another machine records it, although it began here.
    is_given_up: AtomicBool,
    /// The store knows that the record is out of date. Cleared when the record is written.
    pub(super) is_changed: AtomicBool,
    /// Hides secrets in its output. `None` if it uses none.
    scrubbing: Mutex<Option<Scrubbing>>,
    /// Secrets that are hidden in its output, or in that of a fleet's members that are written to.
    hidden_secrets: Mutex<Vec<HiddenSecret>>,
    /// Why output that arrives is dropped, if it is.
    pub(super) withheld: OnceLock<String>,
    /// Bytes that the host has sent, minus those that the log has: scrubbing removes and adds some.
    bytes_scrubbed_away: AtomicI64,
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

/// Maximum changes of a terminal's size that are kept.
const MOST_RESIZES: usize = 64;

/// Prefix of a fleet's id.
const FLEET: &str = "fleet";

impl Job {
    /// A job that starts now.
    pub fn new(caller: Caller, spec: JobSpec, limits: RingLimits) -> Self {
        Self::with_id(Self::new_id(&spec), caller, spec, limits)
    }

    /// A new id for a job, which starts with the name of its host.
    pub fn new_id(spec: &JobSpec) -> JobId {
        if spec.fleet.is_some() {
            JobId::new(FLEET)
        } else {
            JobId::new(&spec.host)
        }
    }

    /// A job that starts now, with an id of [`new_id`](Self::new_id).
    pub fn with_id(id: JobId, caller: Caller, spec: JobSpec, limits: RingLimits) -> Self {
        let log = Log::new(limits);
        Self::begun(
            JobIdentity {
                id,
                mark: Nonce::new(),
                caller,
            },
            spec,
            log,
        )
    }

    /// A job that was started earlier.
    pub fn begun(identity: JobIdentity, spec: JobSpec, log: Log) -> Self {
        let JobIdentity { id, mark, caller } = identity;
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
        let job = Self {
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
            resizes: Mutex::default(),
            reach: HostReach::default(),
            delivered: AtomicU64::new(0),
            has_ended,
            is_stale: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            scrubbing: Mutex::default(),
            hidden_secrets: Mutex::default(),
            withheld: OnceLock::new(),
            bytes_scrubbed_away: AtomicI64::new(0),
            mirror_rounds,
        };
        // The output of a fleet is that of its members, which scrub theirs.
        if job.fleet.is_none() {
            job.spec.secrets.hidden.iter().for_each(|secret| job.hide_secret(secret));
        }
        job
    }

    /// Hides a secret in its output that arrives later. A fleet keeps it for the members that are written
    /// to.
    pub fn hide_secret(&self, secret: &HiddenSecret) {
        let mut hidden = lock(&self.hidden_secrets);
        if !hidden.contains(secret) {
            hidden.push(secret.clone());
        }
        drop(hidden);
        if self.fleet.is_none() {
            lock(&self.scrubbing).get_or_insert_default().hide(secret);
        }
    }

    /// The secrets that are hidden in its output, or in that of a fleet's members that are written to.
    pub fn hidden_secrets(&self) -> Vec<HiddenSecret> {
        lock(&self.hidden_secrets).clone()
    }

    /// A text about the job in which its secrets are hidden. `None` if it was started with secrets that
    /// this process has not read.
    pub fn without_secrets(&self, text: &str) -> Option<String> {
        let hidden = self.hidden_secrets();
        if hidden.is_empty() {
            let secrets = &self.spec.secrets;
            let has_none = secrets.is_empty() && secrets.fingerprints.is_empty();
            return has_none.then(|| text.to_owned());
        }
        let mut scrubber = Scrubber::default();
        hidden.into_iter().for_each(|secret| scrubber.hide(secret));
        let mut scrubbed = scrubber.take(text.as_bytes());
        scrubbed.extend(scrubber.finish());
        Some(String::from_utf8_lossy(&scrubbed).into_owned())
    }

    /// Prepares for output that the host sends again from its start: the part that the log has is
    /// dropped.
    pub fn expect_known_output(&self) {
        let (stdout, stderr) = self.read_log(|log| {
            let ring = log.ring();
            (
                ring.total_bytes(Stream::Stdout),
                ring.total_bytes(Stream::Stderr),
            )
        });
        lock(&self.scrubbing).get_or_insert_default().skip_logged(stdout, stderr);
        let in_log = stdout.saturating_add(stderr).cast_signed();
        self.bytes_scrubbed_away.store(-in_log, Ordering::Relaxed);
    }

    /// Drops all output that arrives later because its secrets can't be hidden. The job's status says why.
    pub fn withhold_output(&self, why: String) {
        lock(&self.scrubbing).get_or_insert_default().withhold();
        self.withheld.get_or_init(|| why);
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
        let is_mirrored = storage.output_store.is_none() || self.is_given_up();
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
        if storage.is_in_flight() {
            self.wait_for(patience, is_here).await;
        }
        if self.read_log(is_here) {
            Reached::Here
        } else {
            Reached::NeverShown
        }
    }

    /// Whether a reader waits in [`reached`](Self::reached) for a line.
    pub fn is_awaited(&self) -> bool {
        self.mirror_rounds.receiver_count() > 0
    }

    /// Whether another machine records this job now. This process did before.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Notes that another machine records the job from now on, and that it is copied here.
    pub fn note_given_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
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

    /// Notes that its terminal has a new size.
    pub fn note_resize(&self, size: TerminalSize) {
        let after = self.read_log(|log| log.ring().total_bytes(Stream::Stdout));
        {
            let mut resizes = lock(&self.resizes);
            let first = self.spec.terminal.as_ref().map(Terminal::size);
            let last = resizes.last().copied();
            if last.map(|resize| resize.size).or(first) == Some(size) {
                return;
            }
            if resizes.len() == MOST_RESIZES {
                resizes.remove(0);
            }
            let number = last.map_or(1, |resize| resize.number + 1);
            resizes.push(Resize {
                number,
                after,
                size,
            });
        }
        self.note_change();
        // Wakes readers of its screen.
        self.log.send_modify(|_| {});
    }

    /// Sets the changes of its terminal's size, as another process knows them.
    pub fn set_resizes(&self, resizes: Vec<Resize>) {
        let is_news = {
            let mut known = lock(&self.resizes);
            // The record may be older than a resize that this process has noted.
            let newest = resizes.last().map(|resize| resize.number);
            let is_news = newest > known.last().map(|resize| resize.number);
            if is_news {
                *known = resizes;
            }
            is_news
        };
        if is_news {
            self.log.send_modify(|_| {});
        }
    }

    /// Changes of its terminal's size, oldest first. Only the newest are kept.
    pub fn resizes(&self) -> Vec<Resize> {
        lock(&self.resizes).clone()
    }

    /// Notes that the host of a durable job has delivered this many bytes, on both streams together.
    /// They are recorded a moment later.
    pub fn note_delivered(&self, bytes: u64) {
        self.delivered.store(bytes, Ordering::Relaxed);
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
            _ = self.wait_for(patience, |log| log.outcome().is_some()) => return,
        }
        // What was delivered is shown once it is recorded and stored.
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.wait_for(patience, |log| {
            let scrubbed_away = self.bytes_scrubbed_away.load(Ordering::Relaxed);
            let shown = log.ring().total().saturating_add_signed(scrubbed_away);
            shown >= delivered || log.outcome().is_some()
        })
        .await;
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

    /// Applies changes that happened at `now`, and wakes all readers. Secrets are hidden first.
    /// Changes that are to be stored are shown once they are.
    ///
    /// Only the task that records the job calls this and [`end`](Self::end).
    pub fn record(&self, changes: Vec<LogChange>, now: Instant) {
        let mut guard = lock(&self.scrubbing);
        let Some(scrubbing) = &mut *guard else {
            drop(guard);
            return self.record_scrubbed(Scrubbed::untouched(changes), now);
        };
        // Under the lock: what is scrubbed first must be recorded first.
        self.record_scrubbed(scrubbing.scrub(changes, now), now);
    }

    /// Shows output that was held back because it may be the start of a secret, once nothing has followed it for a second.
    /// Any task may call this.
    pub fn release_held_output(&self, now: Instant) {
        if let Some(scrubbing) = &mut *lock(&self.scrubbing)
            && !self.has_ended.load(Ordering::Relaxed)
        {
            let released = scrubbing.release(now);
            if !released.changes.is_empty() {
                self.record_scrubbed(released, now);
            }
        }
    }

    fn record_scrubbed(&self, scrubbed: Scrubbed, now: Instant) {
        let Scrubbed {
            changes,
            bytes_removed,
        } = scrubbed;
        if bytes_removed != 0 {
            self.bytes_scrubbed_away.fetch_add(bytes_removed, Ordering::Relaxed);
            // Wakes `caught_up`, also if nothing is left to record.
            self.log.send_modify(|_| {});
        }
        let mut at_once = Vec::new();
        for change in changes {
            if let (Some(pacing), LogChange::Append(_, bytes)) = (&self.pacing, &change) {
                pacing.note_arrived(bytes.len());
            }
            match (change, self.storage.get()) {
                (LogChange::Append(source, bytes), Some(_)) => {
                    self.keep(LogEvent::Append(source, bytes), now);
                }
                (LogChange::FinishStreams, Some(_)) => self.keep(LogEvent::FinishStreams, now),
                // These are not stored, so they may overtake pending output. That is harmless:
                // output also marks the job as running.
                (change, _) => at_once.push(change),
            }
        }
        if !at_once.is_empty() {
            self.write_log(|log| at_once.iter().for_each(|change| log.apply(change, now)));
        }
    }

    /// Notes that the job waits for its turn.
    pub fn queue(&self) {
        self.write_log(Log::queue);
    }

    /// Notes that it is the job's turn to start.
    pub fn admit(&self) {
        self.write_log(Log::admit);
    }

    /// Notes how many GPUs of the host fit the job, which waits for some of them.
    pub fn note_fitting_gpus(&self, count: usize) {
        self.write_log(|log| log.note_fitting_gpus(count));
    }

    /// Notes the GPUs that the job is given.
    pub fn give_gpus(&self, ids: Vec<String>) {
        self.write_log(|log| log.give_gpus(ids));
    }

    /// Notes that a signal is sent to the job through sshjobs. If it can't be delivered, the note is for
    /// [`take_back_signal`](Self::take_back_signal).
    pub fn note_sent_signal(&self, kill: Kill) -> SignalNote {
        self.write_log(|log| log.note_sent(kill))
    }

    /// Notes whether the job is ended because no call has named it.
    pub fn set_abandoned(&self, is_abandoned: bool) {
        self.write_log(|log| log.set_abandoned(is_abandoned));
    }

    /// Takes the note of a signal back, unless another signal was noted after it.
    pub fn take_back_signal(&self, note: SignalNote) {
        self.write_log(|log| log.take_back_sent(note));
    }

    /// Ends the job. Later calls change nothing.
    pub fn end(&self, outcome: Outcome) {
        // The log shows the end only after it is stored, which a slow disk delays.
        self.has_ended.store(true, Ordering::Relaxed);
        let now = Instant::now();
        if let Some(scrubbing) = &mut *lock(&self.scrubbing) {
            self.record_scrubbed(scrubbing.finish(), now);
        }
        self.keep(LogEvent::End(outcome), now);
    }

    pub(super) fn write_log<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let mut result = None;
        {
            let _held = Held::new(LOG_LOCK);
            self.log.send_modify(|log| result = Some(change(log)));
        }
        // After the change: a record that clears an earlier mark could miss the change.
        self.note_change();
        result.expect("send_modify calls its argument")
    }
}

/// Name of the lock of a job's log, for the order of locks that debug builds check.
pub(super) const LOG_LOCK: &str = "a job's log";

/// Runs a closure that the `watch` of the log calls under its lock.
fn under_log_lock<T>(closure: impl FnOnce() -> T) -> T {
    let _held = Held::new(LOG_LOCK);
    closure()
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Values that distinguish a job from all others.
#[derive(Clone, Debug)]
pub struct JobIdentity {
    /// The job's id.
    pub id: JobId,
    /// Identifies its processes on the host.
    pub mark: Nonce,
    /// Owner of the job.
    pub caller: Caller,
}
