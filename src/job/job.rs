use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::tail::{Glanced, Waiter};
use super::{
    Caller, Change, Cursors, JobId, JobSpec, Log, Nonce, Outcome, Pace, ProcessGroup, Status, Tail, TooSlow,
    Wait,
};
use crate::output::{PageQuery, RingLimits, Selection, Stream};

/// One run of one command on a host: its spec, and its log in a watch.
#[derive(Debug)]
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
    log: watch::Sender<Log>,
    /// Bytes that its follower has taken, when the far end waits for it.
    followed: Option<watch::Sender<u64>>,
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

/// The most bytes of a stream in one [`Chunk`].
const CHUNK_BYTES: usize = 256 << 10;

/// Most bytes that the far end may be ahead of a follower that it waits for.
const AHEAD: u64 = 1 << 20;

impl Job {
    /// A job that starts now.
    pub fn new(caller: Caller, spec: JobSpec, limits: RingLimits) -> Self {
        let followed = (spec.pace == Pace::OfFollower).then(|| watch::Sender::new(0));
        Self {
            id: JobId::new(&spec.host),
            spec,
            mark: Nonce::new(),
            caller,
            cursors: Cursors::default(),
            log: watch::Sender::new(Log::new(limits)),
            followed,
        }
    }

    /// Reads the lines behind the query's cursor; waits for news when there is none.
    ///
    /// Reading changes nothing. Dropping the future ends the wait and loses nothing. Patterns that take too long end it with what
    /// they have found, or with an error when that is nothing.
    pub async fn tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, TooSlow> {
        let mut waiter = Waiter::new(query, wait);
        let mut log = self.log.subscribe();
        loop {
            // From here on no change is missed.
            log.mark_unchanged();
            waiter.look(&|look: &mut dyn FnMut(&Log)| look(&self.log.borrow())).await?;
            let wake_at = match waiter.glance(&self.log.borrow()) {
                Glanced::Answer(tail) => return Ok(*tail),
                Glanced::More => continue,
                Glanced::Nothing { look_again_at } => look_again_at,
            };
            tokio::select! {
                changed = log.changed() => changed.expect("a job owns its log"),
                () = sleep_until(wake_at) => {}
            }
        }
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
        if let Some(followed) = &self.followed {
            followed.send_if_modified(|taken| {
                let before = std::mem::replace(taken, (*taken).max(positions.stdout + positions.stderr));
                before != *taken
            });
        }
        let mut log = self.log.subscribe();
        let log = log
            .wait_for(|log| {
                log.outcome().is_some()
                    || log.ring().total_bytes(Stream::Stdout) > positions.stdout
                    || log.ring().total_bytes(Stream::Stderr) > positions.stderr
            })
            .await
            .expect("a job owns its log");
        let mut chunk = Chunk::default();
        let mut read = |stream, position: &mut u64| {
            let (from, bytes) = log.ring().bytes_from(stream, *position, CHUNK_BYTES);
            chunk.dropped_bytes += from - *position;
            *position = from + bytes.len() as u64;
            bytes.into_owned()
        };
        chunk.stdout = read(Stream::Stdout, &mut positions.stdout);
        chunk.stderr = read(Stream::Stderr, &mut positions.stderr);
        chunk.at_end = log.outcome().is_some()
            && log.ring().total_bytes(Stream::Stdout) == positions.stdout
            && log.ring().total_bytes(Stream::Stderr) == positions.stderr;
        chunk
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] is so far behind that no more output should be taken. Cancel safe.
    pub async fn runs_ahead(&self) {
        let Some(followed) = &self.followed else { return std::future::pending().await };
        let mut log = self.log.subscribe();
        let ahead =
            log.wait_for(|log| log.ring().total() >= followed.borrow().saturating_add(AHEAD)).await.is_ok();
        debug_assert!(ahead, "the job owns its sender");
    }

    /// Waits until the follower of a job [`Pace::OfFollower`] is near enough that more output can be taken. Cancel safe.
    pub async fn has_room(&self) {
        if let Some(followed) = &self.followed {
            let total = self.log.borrow().ring().total();
            let near =
                followed.subscribe().wait_for(|taken| total < taken.saturating_add(AHEAD)).await.is_ok();
            debug_assert!(near, "the job owns its sender");
        }
    }

    /// Whether the far end is to be held back now.
    pub fn is_held(&self) -> bool {
        let total = self.log.borrow().ring().total();
        self.followed.as_ref().is_some_and(|taken| total >= taken.borrow().saturating_add(AHEAD))
    }

    /// Stops waiting for the follower: from here on output is taken as it comes.
    pub fn let_go(&self) {
        if let Some(followed) = &self.followed {
            followed.send_replace(u64::MAX);
        }
    }

    /// The job at this moment.
    pub fn status(&self) -> Status {
        self.log.borrow().status()
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

    /// Reads the log.
    pub fn read_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.borrow())
    }

    /// Makes changes that happened at `now`, and tells everyone who waits.
    pub fn record(&self, changes: &[Change], now: Instant) {
        if !changes.is_empty() {
            self.write_log(|log| changes.iter().for_each(|change| log.apply(change, now)));
        }
    }

    /// The job is over. Later calls change nothing.
    pub fn end(&self, outcome: Outcome) {
        self.write_log(|log| log.end(outcome, Instant::now()));
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
    pub fn forget_output(&self, selection: Selection) -> (u64, u64) {
        self.write_log(|log| log.ring_mut().forget(selection))
    }
}
