//! A thread that writes a log, for calls that must not block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::anchor::copy_to;
use super::error::AuditError;
use super::event::Event;
use super::line::LogHead;
use super::log::AuditLog;
use super::settings::{Anchor, AuditFiles, AuditSettings};

/// Writes events to a log, on a thread of its own. Events that come at the same time are written
/// together, with one sync.
#[derive(Clone)]
pub struct AuditRecorder {
    requests: SyncSender<LogRequest>,
    /// Lines that could not be written.
    missed: Arc<AtomicU64>,
    /// Whether the last attempt to write has failed.
    is_failing: Arc<AtomicBool>,
}

enum LogRequest {
    /// Append an event.
    Append(Append),
    /// Sign what is there, and reply.
    Sign(oneshot::Sender<()>),
}

type Reply = oneshot::Sender<Result<u64, Arc<AuditError>>>;

/// An event to append.
struct Append {
    event: Event,
    /// Whether it must be on the disk before the reply.
    sync: bool,
    /// Receives the line's sequence number. `None` if nobody waits for it.
    reply: Option<Reply>,
}

/// Why an event was not recorded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RecordError {
    /// The log can't be written.
    #[error(transparent)]
    Log(#[from] Arc<AuditError>),
    /// The disk does not answer.
    #[error("the audit log was not written within {ANSWER:?}")]
    TooSlow,
    /// More lines wait to be written than may.
    #[error("more than {MOST_WAITING} lines wait to be written to the audit log")]
    Full,
    /// The thread has ended.
    #[error("the audit log is not written any more: restart this process")]
    Stopped,
}

/// Time limit for a line.
const ANSWER: Duration = Duration::from_secs(5);
/// Events that wait to be written. Beyond them a call waits or is refused.
const MOST_WAITING: usize = 4096;
/// Events that are written together.
const AT_ONCE: usize = 128;
/// Interval of checkpoints, if there are lines to sign.
const CHECKPOINTS: Duration = Duration::from_secs(60);
/// Maximum heads that wait to be copied.
const MOST_HEADS: usize = 16;

impl AuditRecorder {
    /// Starts to write a log. It is opened with the first event, and begins with a line about `writer`.
    /// Each signed head is copied to the anchors and, in a cluster, to its store.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(
        files: AuditFiles,
        settings: &AuditSettings,
        writer: WriterName,
        cluster: Option<CopyHead>,
    ) -> std::io::Result<Self> {
        let (requests, received) = sync_channel(MOST_WAITING);
        let missed = Arc::new(AtomicU64::new(0));
        let is_failing = Arc::new(AtomicBool::new(false));
        let copiers = copiers(settings.anchors.clone(), cluster)?;
        let mut writer = LogThread {
            files,
            longest: u64::from(settings.rotate_mb.get()) << 20,
            writer,
            log: None,
            copiers,
            missed: Arc::clone(&missed),
            is_failing: Arc::clone(&is_failing),
            signed_at: Instant::now(),
        };
        thread::Builder::new()
            .name("sshjobs-audit".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self {
            requests,
            missed,
            is_failing,
        })
    }

    /// Records an event, and waits until it is on the disk. Returns the sequence number of its line.
    ///
    /// # Errors
    /// If it is not on the disk within some seconds.
    pub async fn record(&self, event: Event) -> Result<u64, RecordError> {
        self.append(event, true).await
    }

    /// Records an event, and waits until it is in the file, but perhaps not on the disk yet.
    ///
    /// # Errors
    /// If it is not in the file within some seconds.
    pub async fn write(&self, event: Event) -> Result<u64, RecordError> {
        self.append(event, false).await
    }

    async fn append(&self, event: Event, sync: bool) -> Result<u64, RecordError> {
        let (reply, written) = oneshot::channel();
        let request = LogRequest::Append(Append {
            event,
            sync,
            reply: Some(reply),
        });
        match self.requests.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(RecordError::Full),
            Err(TrySendError::Disconnected(_)) => return Err(RecordError::Stopped),
        }
        match timeout(ANSWER, written).await {
            Ok(Ok(written)) => Ok(written?),
            Ok(Err(_)) => Err(RecordError::Stopped),
            Err(_) => Err(RecordError::TooSlow),
        }
    }

    /// Records an event without waiting for it.
    pub fn note(&self, event: Event) {
        let request = LogRequest::Append(Append {
            event,
            sync: false,
            reply: None,
        });
        match self.requests.try_send(request) {
            Ok(()) => {}
            // The thread ends only with this value.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.note_missed(),
        }
    }

    /// Writes all events that wait, and a checkpoint. At most for some seconds.
    pub async fn finish(&self) {
        let (reply, signed) = oneshot::channel();
        let is_sent = self.requests.try_send(LogRequest::Sign(reply)).is_ok();
        if !is_sent || timeout(ANSWER, signed).await.is_err() {
            tracing::error!("the audit log lacks its last lines: they were not written in time");
        }
    }

    /// Whether the last attempt to write the log has failed.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    /// Counts an event that could not be recorded, and whose call went on.
    pub fn note_missed(&self) {
        self.missed.fetch_add(1, Relaxed);
    }
}

/// Requests to a thread that copies heads.
enum CopyRequest {
    /// Copy this head.
    Head(LogHead),
    /// Drop this when all heads before are copied: then the wait for it ends.
    Reply(Arc<oneshot::Sender<()>>),
}

/// Copies a head to the store of a cluster. Blocks the thread.
pub type CopyHead = Box<dyn Fn(LogHead) -> std::io::Result<()> + Send>;

/// Who writes a log.
#[derive(Clone, Debug)]
pub struct WriterName {
    /// Description of the process.
    pub process: String,
    /// Name of its machine.
    pub machine: String,
}

/// The thread.
struct LogThread {
    files: AuditFiles,
    /// Bytes after which the log is continued in a new file.
    longest: u64,
    writer: WriterName,
    /// `None` until it is open.
    log: Option<AuditLog>,
    /// Threads that copy heads.
    copiers: Vec<SyncSender<CopyRequest>>,
    missed: Arc<AtomicU64>,
    is_failing: Arc<AtomicBool>,
    signed_at: Instant,
}

impl LogThread {
    fn run(&mut self, received: &Receiver<LogRequest>) {
        loop {
            match received.recv_timeout(CHECKPOINTS.saturating_sub(self.signed_at.elapsed())) {
                Ok(request) => {
                    let more = received.try_iter().take(AT_ONCE);
                    self.perform(std::iter::once(request).chain(more));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.signed_at.elapsed() >= CHECKPOINTS {
                self.sign();
            }
        }
        // The process ends, or the settings have changed.
        self.sign();
    }

    fn perform(&mut self, requests: impl Iterator<Item = LogRequest>) {
        let mut appends = Vec::new();
        let mut signs = Vec::new();
        for request in requests {
            match request {
                // Its call was refused meanwhile, because nothing was written in time.
                LogRequest::Append(append)
                    if append.reply.as_ref().is_some_and(Reply::is_closed) => {}
                LogRequest::Append(append) => appends.push(append),
                LogRequest::Sign(reply) => signs.push(reply),
            }
        }
        if !appends.is_empty() {
            self.write(appends);
        }
        if !signs.is_empty() {
            self.sign();
            for reply in signs {
                // Ends the wait when the last copy of it is dropped, also by a full queue.
                let reply = Arc::new(reply);
                for copier in &self.copiers {
                    drop(copier.try_send(CopyRequest::Reply(Arc::clone(&reply))));
                }
            }
        }
    }

    fn write(&mut self, appends: Vec<Append>) {
        let missed = self.missed.swap(0, Relaxed);
        let sync = appends.iter().any(|append| append.sync);
        let (events, replies): (Vec<Event>, Vec<_>) =
            appends.into_iter().map(|append| (append.event, append.reply)).unzip();
        let mut all = Vec::new();
        all.extend((missed > 0).then_some(Event::Missed { lines: missed }));
        let before = all.len() as u64;
        all.extend(events);
        match self.append(&all, sync) {
            Ok(first) => {
                for (number, reply) in (first + before..).zip(replies) {
                    // Fails only if the caller has gone away.
                    reply.map(|reply| reply.send(Ok(number)));
                }
            }
            Err(error) => {
                // Those that nobody waits for; of the others, their callers count.
                let unnoticed = replies.iter().filter(|reply| reply.is_none()).count() as u64;
                self.missed.fetch_add(missed + unnoticed, Relaxed);
                tracing::error!(%error, "calls are not recorded");
                let error = Arc::new(error);
                for reply in replies.into_iter().flatten() {
                    reply.send(Err(Arc::clone(&error))).ok();
                }
            }
        }
    }

    /// Appends to the log, which it opens if necessary.
    fn append(&mut self, events: &[Event], sync: bool) -> Result<u64, AuditError> {
        let appended = self.try_append(events, sync);
        self.is_failing.store(appended.is_err(), Relaxed);
        appended
    }

    fn try_append(&mut self, events: &[Event], sync: bool) -> Result<u64, AuditError> {
        let mut log = match self.log.take() {
            Some(log) => log,
            None => self.open()?,
        };
        let appended = self.append_to(&mut log, events, sync);
        self.log = Some(log);
        appended
    }

    /// Opens the log, and signs its first line at once: anyone may have written a log without a signature.
    fn open(&mut self) -> Result<AuditLog, AuditError> {
        let mut log = AuditLog::new(self.files.clone(), self.longest)?;
        let opened = Event::Opened {
            process: self.writer.process.clone(),
            machine: self.writer.machine.clone(),
            public_key: log.key().public().to_string(),
        };
        log.append(&[opened], false)?;
        let head = log.sign()?;
        self.note_signed(head);
        Ok(log)
    }

    fn append_to(
        &mut self,
        log: &mut AuditLog,
        events: &[Event],
        sync: bool,
    ) -> Result<u64, AuditError> {
        let signed = log.signed();
        let first = log.append(events, sync)?;
        if log.signed() != signed {
            let head = log.head();
            self.note_signed(head);
        }
        Ok(first)
    }

    fn sign(&mut self) {
        self.signed_at = Instant::now();
        let missed = self.missed.swap(0, Relaxed);
        if missed > 0
            && let Err(error) = self.append(&[Event::Missed { lines: missed }], true)
        {
            self.missed.fetch_add(missed, Relaxed);
            tracing::error!(%error, missed, "calls are not recorded");
        }
        let Some(log) = self.log.as_mut().filter(|log| log.unsigned() > 0) else {
            return;
        };
        match log.sign() {
            Ok(head) => self.note_signed(head),
            Err(error) => tracing::error!(%error, "no checkpoint could be written"),
        }
    }

    fn note_signed(&mut self, head: LogHead) {
        self.signed_at = Instant::now();
        for copier in &self.copiers {
            if copier.try_send(CopyRequest::Head(head)).is_err() {
                tracing::error!(%head, "a head of the audit log is not copied: too many wait");
            }
        }
    }
}

/// Starts a thread that copies heads to the anchors, and one that copies them to the cluster: each may
/// take seconds, and must not hold up the other.
fn copiers(
    anchors: Vec<Anchor>,
    cluster: Option<CopyHead>,
) -> std::io::Result<Vec<SyncSender<CopyRequest>>> {
    let mut copiers = Vec::new();
    if !anchors.is_empty() {
        copiers.push(copier("sshjobs-anchor", move |head| {
            for anchor in &anchors {
                log_copy_error(anchor.kind(), copy_to(anchor, head));
            }
        })?);
    }
    if let Some(copy) = cluster {
        copiers.push(copier("sshjobs-cluster-head", move |head| {
            log_copy_error("cluster", copy(head));
        })?);
    }
    Ok(copiers)
}

fn copier(
    thread: &str,
    copy: impl Fn(LogHead) + Send + 'static,
) -> std::io::Result<SyncSender<CopyRequest>> {
    let (sender, requests) = sync_channel(MOST_HEADS);
    thread::Builder::new().name(thread.to_owned()).spawn(move || {
        for request in requests {
            match request {
                CopyRequest::Head(head) => copy(head),
                CopyRequest::Reply(reply) => drop(reply),
            }
        }
    })?;
    Ok(sender)
}

fn log_copy_error(place: &str, copied: std::io::Result<()>) {
    if let Err(error) = copied {
        tracing::error!(%error, place, "the head of the audit log can't be copied");
    }
}
