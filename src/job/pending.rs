use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{JobId, Outcome};
use crate::output::{Checkpoint, LineNo, Stream, Timestamp};

/// Whoever stores a job's output before it is shown.
pub trait Keeper: Send + Sync {
    /// A job has output to be stored: somebody takes it by `Job::take_batch`, and shows it by `Job::show`. Never waits.
    fn call(&self, job: &JobId);

    /// So many bytes wait now (or no longer, when negative); true when those of all jobs are too many. Never waits.
    fn weigh(&self, bytes: isize) -> bool;
}

/// What happens to a job's log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Bytes come.
    Append(Stream, Bytes),
    /// Nothing more comes on either stream.
    FinishStreams,
    /// The job is over.
    End(Outcome),
    /// Output is missing: the log goes on here.
    Gap(Box<Checkpoint>),
}

/// Events that are stored and shown together.
#[derive(Debug)]
pub struct Batch {
    /// Them, with their times for the store and for the log.
    pub events: Vec<(LogEvent, Timestamp, Instant)>,
    /// Where the log stood before them, if that was asked for, or if what came before is not stored.
    pub checkpoint: Option<Checkpoint>,
    /// The last event is the end of the job.
    pub is_end: bool,
    bytes: usize,
}

/// Events that wait to be stored.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: VecDeque<(LogEvent, Instant)>,
    /// Bytes of these, and of those in flight.
    pub(super) bytes: usize,
    in_flight: Option<Arc<Batch>>,
    /// The batch that was shown while it was in flight, and the newest line then.
    overtaken: Option<(Arc<Batch>, LineNo)>,
    /// Somebody was called, and has not found the queue empty since.
    is_called: bool,
    /// Events were shown that nobody has stored.
    has_skipped: bool,
}

/// Most bytes of one job that wait to be stored: about 0.15 s of output at 200 MB/s. Beyond that they are shown unstored.
const MOST_WAITING: usize = 32 << 20;
/// What an event weighs besides its bytes.
const EVENT_BYTES: usize = 64;

impl Batch {
    /// Events to be stored that wait nowhere.
    pub fn new(events: Vec<(LogEvent, Timestamp, Instant)>, checkpoint: Option<Checkpoint>) -> Self {
        let is_end = matches!(events.last(), Some((LogEvent::End(_), ..)));
        Self { events, checkpoint, is_end, bytes: 0 }
    }
}

impl LogEvent {
    fn weight(&self) -> usize {
        match self {
            Self::Append(_, bytes) => bytes.len() + EVENT_BYTES,
            Self::FinishStreams | Self::End(_) | Self::Gap(_) => EVENT_BYTES,
        }
    }
}

impl Pending {
    /// Takes events in; true when somebody has to be called.
    pub(super) fn push(&mut self, event: LogEvent, now: Instant) -> bool {
        self.bytes += event.weight();
        self.waiting.push_back((event, now));
        !std::mem::replace(&mut self.is_called, true)
    }

    /// Whether a far end that keeps its output should wait before it sends more.
    pub(super) fn is_long(&self) -> bool {
        self.bytes > MOST_WAITING / 8
    }

    /// Arrival time of the oldest event that is not shown yet.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let in_flight = self.in_flight.as_ref().and_then(|batch| Some(batch.events.first()?.2));
        in_flight.or_else(|| Some(self.waiting.front()?.1))
    }

    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > MOST_WAITING
    }

    /// Everything that was not shown, to be shown unstored: what is in flight first. `show` returns the newest line.
    pub(super) fn skip(&mut self, mut show: impl FnMut(&LogEvent, Instant) -> LineNo) {
        if let Some(batch) = self.in_flight.take() {
            let mut newest = None;
            for (event, _, now) in &batch.events {
                newest = Some(show(event, *now));
            }
            // It may still turn out to be stored.
            self.overtaken = newest.map(|newest| (batch, newest));
        }
        self.has_skipped |= !self.waiting.is_empty();
        for (event, now) in self.waiting.drain(..) {
            show(&event, now);
        }
        self.bytes = 0;
    }

    /// The newest line after a batch that was shown while it was in flight.
    pub(super) fn take_overtaken(&mut self, batch: &Arc<Batch>) -> Option<LineNo> {
        let (overtaken, newest) = self.overtaken.take()?;
        Arc::ptr_eq(&overtaken, batch).then_some(newest)
    }

    /// The next events, `most` bytes of them, about; none when none wait. One batch must be shown before the next is taken.
    pub(super) fn take(
        &mut self,
        most: usize,
        at: impl Fn(Instant) -> Timestamp,
        checkpoint: impl FnOnce(bool) -> Option<Checkpoint>,
    ) -> Option<Arc<Batch>> {
        if self.waiting.is_empty() {
            self.is_called = false;
            return None;
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < most
            && let Some((event, now)) = self.waiting.pop_front()
        {
            bytes += event.weight();
            events.push((event, at(now), now));
        }
        let checkpoint = checkpoint(std::mem::take(&mut self.has_skipped));
        let batch = Arc::new(Batch { bytes, ..Batch::new(events, checkpoint) });
        self.in_flight = Some(Arc::clone(&batch));
        Some(batch)
    }

    /// Whether a batch is still to be shown; afterwards it counts as such.
    pub(super) fn is_to_be_shown(&mut self, batch: &Arc<Batch>) -> bool {
        let is_ours = self.in_flight.as_ref().is_some_and(|in_flight| Arc::ptr_eq(in_flight, batch));
        if is_ours {
            self.in_flight = None;
            self.bytes = self.bytes.saturating_sub(batch.bytes);
        }
        is_ours
    }

    /// Whether events were shown that nobody has stored, and nothing behind them is.
    pub(super) fn has_skipped(&self) -> bool {
        self.has_skipped
    }

    /// A batch could not be stored: what follows begins behind a gap.
    pub(super) fn note_unstored(&mut self) {
        self.has_skipped = true;
    }
}
