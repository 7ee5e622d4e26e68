//! Events that wait to be stored. They are shown in order, each once, stored or not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{JobId, Outcome};
use sshjobs_output::{Checkpoint, LineNo, OutputSource, Timestamp};

/// Stores a job's output before it is shown.
pub trait OutputStore: Send + Sync {
    /// Reports that a job has output to store. The store takes it with `Job::take_batch` and shows
    /// it with `Job::show`. Never waits.
    fn notify(&self, job: &JobId);

    /// Reports that a job's record is out of date. Not called again until
    /// [`Job::take_changed`](crate::Job::take_changed). Never waits.
    fn note_change(&self, job: &JobId);

    /// Adds to the number of pending bytes (or subtracts, if negative). Never waits.
    fn account(&self, bytes: isize);

    /// How it gets on with the output of all jobs. Never waits.
    fn load(&self) -> StoreLoad;

    /// Whether the end of a job waits for the store if its output was shown before it was stored.
    fn end_of_job(&self) -> EndOfJob;
}

/// How a store gets on with the output of all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLoad {
    /// It makes progress.
    Light,
    /// It makes progress, but much output of all jobs waits for it.
    Heavy,
    /// It has stored nothing for some seconds, although output waits for it.
    StandsStill,
    /// It stands still, and so much output of all jobs waits for it that no more may.
    IsFull,
}

/// Whether the end of a job waits for the store if its output was shown before it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfJob {
    /// Only readers of this process follow the job.
    IsShownAtOnce,
    /// It waits until it is stored, so that other machines learn of it, and how many lines it has.
    WaitsForStore,
}

/// An event of a job's log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Bytes were printed.
    Append(OutputSource, Bytes),
    /// Both streams have ended.
    FinishStreams,
    /// The job has ended.
    End(Outcome),
    /// Output is missing, and the log continues here.
    Gap(Box<Checkpoint>),
}

/// Events that are stored and shown together.
#[derive(Debug)]
pub struct Batch {
    /// The events, with their times for the store and for the log.
    pub events: Vec<(LogEvent, Timestamp, Instant)>,
    /// State of the log before them, if requested, or if earlier output is not stored.
    pub checkpoint: Option<Checkpoint>,
    /// Whether the last event is the end of the job.
    pub is_end: bool,
    bytes: usize,
}

/// Events that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    waiting: VecDeque<(LogEvent, Instant)>,
    /// Bytes of these events and of those in flight.
    pub(crate) bytes: usize,
    in_flight: Option<Arc<Batch>>,
    /// The batch that was shown while it was in flight, and its newest line.
    overtaken: Option<(Arc<Batch>, LineNo)>,
    /// The store was called, and has not found the queue empty since.
    is_called: bool,
    /// Some events were shown without being stored.
    has_skipped: bool,
    /// Another machine records the job now.
    is_given_up: bool,
}

/// Pending bytes of one job, while the store makes progress, at which its far end has to wait.
const MOST_AHEAD: usize = 4 << 20;
/// Pending bytes at which the far end continues. Far below, so that it does not wait for each batch.
const FEW_AHEAD: usize = 2 << 20;
/// Maximum pending bytes of one job while the store stands still. Beyond that, output is shown before it is stored.
const MOST_WAITING: usize = 32 << 20;
/// Memory of an event in addition to its bytes.
const EVENT_BYTES: usize = 64;

impl Batch {
    /// A batch of these events, with the state of the log before them if given.
    pub fn new(
        events: Vec<(LogEvent, Timestamp, Instant)>,
        checkpoint: Option<Checkpoint>,
    ) -> Self {
        let is_end = matches!(events.last(), Some((LogEvent::End(_), ..)));
        Self {
            events,
            checkpoint,
            is_end,
            bytes: 0,
        }
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
    /// Adds an event. Returns true if the store must be called.
    pub(crate) fn push(&mut self, event: LogEvent, now: Instant) -> bool {
        if self.is_given_up {
            return false;
        }
        self.bytes += event.weight();
        self.waiting.push_back((event, now));
        !std::mem::replace(&mut self.is_called, true)
    }

    /// Whether a batch is being stored, or is stored and not yet shown.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the job's far end has to wait until the store has caught up.
    pub(crate) fn is_far_behind(&self, load: StoreLoad) -> bool {
        self.bytes > MOST_AHEAD || self.bytes > 0 && load == StoreLoad::Heavy
    }

    /// Whether a far end that waits has to keep waiting.
    pub(crate) fn is_behind(&self, load: StoreLoad) -> bool {
        self.bytes > FEW_AHEAD || self.bytes > 0 && load == StoreLoad::Heavy
    }

    /// Arrival time of the oldest event that is not shown yet.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let in_flight = self.in_flight.as_ref().and_then(|batch| Some(batch.events.first()?.2));
        in_flight.or_else(|| Some(self.waiting.front()?.1))
    }

    /// Whether the oldest event has waited longer than `limit`.
    pub(crate) fn is_overdue(&self, limit: Duration) -> bool {
        self.oldest().is_some_and(|oldest| oldest.elapsed() > limit)
    }

    /// Whether output must be shown before it is stored, because no more may wait. While the store makes progress, far
    /// ends wait instead.
    pub(crate) fn is_too_long(&self, load: StoreLoad) -> bool {
        match load {
            StoreLoad::Light | StoreLoad::Heavy => false,
            StoreLoad::StandsStill => self.bytes > MOST_WAITING,
            StoreLoad::IsFull => true,
        }
    }

    /// Shows pending events without storing them, first those in flight. `show` returns the newest
    /// line.
    pub(crate) fn skip(
        &mut self,
        end_of_job: EndOfJob,
        mut show: impl FnMut(&LogEvent, Instant) -> LineNo,
    ) {
        let has_end = matches!(self.waiting.back(), Some((LogEvent::End(_), _)));
        let end = match end_of_job {
            EndOfJob::WaitsForStore if has_end => self.waiting.pop_back(),
            EndOfJob::WaitsForStore | EndOfJob::IsShownAtOnce => None,
        };
        if let Some(batch) = self.in_flight.take() {
            let mut newest = None;
            for (event, _, now) in &batch.events {
                newest = Some(show(event, *now));
            }
            // The batch in flight may still be stored.
            self.overtaken = newest.map(|newest| (batch, newest));
        }
        // Without the batch in flight: `Job::show` reports later whether that is stored.
        self.has_skipped |= !self.waiting.is_empty();
        for (event, now) in self.waiting.drain(..) {
            show(&event, now);
        }
        // The batch in flight is subtracted, too. `mark_shown` then ignores it, because no batch is in flight: each is shown before
        // the next is taken.
        self.bytes = end.as_ref().map_or(0, |(event, _)| event.weight());
        self.waiting.extend(end);
    }

    /// The newest line after a batch that was shown while it was in flight.
    pub(crate) fn take_overtaken(&mut self, batch: &Arc<Batch>) -> Option<LineNo> {
        let (overtaken, newest) = self.overtaken.take()?;
        Arc::ptr_eq(&overtaken, batch).then_some(newest)
    }

    /// The next events, about `most` bytes; `None` if none are pending. Each batch must be shown
    /// before the next is taken.
    pub(crate) fn take(
        &mut self,
        most: usize,
        at: impl Fn(Instant) -> Timestamp,
        checkpoint: impl FnOnce(bool) -> Option<Checkpoint>,
    ) -> Option<Arc<Batch>> {
        if self.waiting.is_empty() {
            // Under the lock of `push`, so that every later event calls the store.
            self.is_called = false;
            return None;
        }
        let mut events = Vec::new();
        let mut bytes = 0;
        // The last event may exceed `most`: events are not divided.
        while bytes < most
            && let Some((event, now)) = self.waiting.pop_front()
        {
            bytes += event.weight();
            events.push((event, at(now), now));
        }
        // The checkpoint records the gap. If this batch fails, `note_unstored` sets the flag again.
        let checkpoint = checkpoint(std::mem::take(&mut self.has_skipped));
        let batch = Arc::new(Batch {
            bytes,
            ..Batch::new(events, checkpoint)
        });
        self.in_flight = Some(Arc::clone(&batch));
        Some(batch)
    }

    /// Marks a batch as shown. Returns whether it was not shown before.
    pub(crate) fn mark_shown(&mut self, batch: &Arc<Batch>) -> bool {
        let is_ours =
            self.in_flight.as_ref().is_some_and(|in_flight| Arc::ptr_eq(in_flight, batch));
        if is_ours {
            self.in_flight = None;
            self.bytes = self.bytes.saturating_sub(batch.bytes);
        }
        is_ours
    }

    /// Whether events were shown without being stored since the last batch was taken.
    pub(crate) fn has_skipped(&self) -> bool {
        self.has_skipped
    }

    /// Drops all events without showing them, and later ones, too: another machine records the job
    /// now.
    pub(crate) fn give_up(&mut self) {
        *self = Self {
            is_given_up: true,
            ..Self::default()
        };
    }

    /// Notes that a batch could not be stored, so the next one starts after a gap.
    pub(crate) fn note_unstored(&mut self) {
        self.has_skipped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exit, wall_now};

    fn shown_without_being_stored(pending: &mut Pending, end_of_job: EndOfJob) -> Vec<LogEvent> {
        let mut shown = Vec::new();
        pending.skip(end_of_job, |event, _| {
            shown.push(event.clone());
            LineNo::START
        });
        shown
    }

    #[test]
    fn only_a_shared_store_is_waited_for_with_the_end_of_a_job() {
        let end = LogEvent::End(Outcome::Ended(Exit::Status(0)));
        let events = [LogEvent::FinishStreams, end];
        let pending = || {
            let mut pending = Pending::default();
            for event in events.clone() {
                pending.push(event, Instant::now());
            }
            pending
        };

        let mut of_one_process = pending();
        let shown = shown_without_being_stored(&mut of_one_process, EndOfJob::IsShownAtOnce);
        assert_eq!(shown, events);
        assert_eq!(of_one_process.bytes, 0);

        let mut shared = pending();
        let shown = shown_without_being_stored(&mut shared, EndOfJob::WaitsForStore);
        assert_eq!(shown, events[..1]);
        let mut follows_a_gap = false;
        let batch = shared.take(
            usize::MAX,
            |_| wall_now(),
            |has_gap| {
                follows_a_gap = has_gap;
                None
            },
        );
        let batch = batch.expect("the end waits");
        assert!(batch.is_end && follows_a_gap);
        assert!(shared.mark_shown(&batch));
        assert_eq!(shared.bytes, 0);
    }
}
