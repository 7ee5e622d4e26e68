//! The queue of one job: its output in order, each event shown once, stored or not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::output_store::{EndOfJob, StoreLoad};
use crate::log::LogEvent;
use sshjobs_output::{Checkpoint, LineNo, Timestamp};

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

/// Events that are not stored yet; see the [module](super).
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    state: QueueState,
    /// Events that no batch has yet.
    waiting: VecDeque<(LogEvent, Instant)>,
    /// Bytes of these events, and of those in a batch that is not shown.
    bytes: usize,
    /// Events before those that wait were shown and not stored: the next batch has a checkpoint.
    follows_gap: bool,
}

/// State of a queue.
#[derive(Debug, Default)]
enum QueueState {
    /// Nothing waits. The next event calls the store.
    #[default]
    Empty,
    /// The store was called, and takes a batch soon.
    Called,
    /// The store writes this batch.
    Storing(Arc<Batch>),
    /// The store still writes a batch that is shown already, up to this line.
    StoringShown(LineNo),
    /// Another machine records the job now. Nothing is taken any more.
    GivenUp,
}

/// Result of an attempt to store a batch.
pub(crate) enum StoreAttempt {
    /// The events of this batch are to be shown now.
    ToShow(Arc<Batch>),
    /// They were shown before, up to this line.
    ShownBefore(LineNo),
    /// The job was given up meanwhile: nothing is shown.
    GivenUp,
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
        let bytes = events.iter().map(|(event, ..)| weight(event)).sum();
        Self {
            events,
            checkpoint,
            is_end,
            bytes,
        }
    }
}

/// Memory of an event in the queue, in bytes.
fn weight(event: &LogEvent) -> usize {
    match event {
        LogEvent::Append(_, bytes) => bytes.len() + EVENT_BYTES,
        LogEvent::FinishStreams | LogEvent::End(_) | LogEvent::Gap(_) => EVENT_BYTES,
    }
}

impl OutputQueue {
    /// Bytes that are neither stored nor shown.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an event. Returns true if the store must be called.
    pub(crate) fn push(&mut self, event: LogEvent, now: Instant) -> bool {
        let calls_store = match self.state {
            QueueState::GivenUp => return false,
            QueueState::Empty => true,
            QueueState::Called | QueueState::Storing(_) | QueueState::StoringShown(_) => false,
        };
        if calls_store {
            self.state = QueueState::Called;
        }
        self.bytes += weight(&event);
        self.waiting.push_back((event, now));
        calls_store
    }

    /// Whether a batch is being stored, or is stored and not yet shown.
    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, QueueState::Storing(_))
    }

    /// Whether the store writes a batch now, shown or not.
    pub(crate) fn is_being_written(&self) -> bool {
        matches!(
            self.state,
            QueueState::Storing(_) | QueueState::StoringShown(_)
        )
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
        if let QueueState::Storing(batch) = &self.state
            && let Some((.., arrived)) = batch.events.first()
        {
            return Some(*arrived);
        }
        self.waiting.front().map(|(_, arrived)| *arrived)
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

    /// Shows all events without waiting for the store, first those that it writes now. `show` returns the newest line.
    pub(crate) fn show_early(
        &mut self,
        end_of_job: EndOfJob,
        mut show: impl FnMut(&LogEvent, Instant) -> LineNo,
    ) {
        let has_end = matches!(self.waiting.back(), Some((LogEvent::End(_), _)));
        let end = match end_of_job {
            EndOfJob::WaitsForStore if has_end => self.waiting.pop_back(),
            EndOfJob::WaitsForStore | EndOfJob::IsShownAtOnce => None,
        };
        if let QueueState::Storing(batch) = &self.state {
            let mut newest = LineNo::START;
            for (event, _, arrived) in &batch.events {
                newest = show(event, *arrived);
            }
            // It may still be stored, so it leaves no gap yet.
            self.state = QueueState::StoringShown(newest);
        }
        self.follows_gap |= !self.waiting.is_empty();
        for (event, arrived) in self.waiting.drain(..) {
            show(&event, arrived);
        }
        self.bytes = end.as_ref().map_or(0, |(event, _)| weight(event));
        self.waiting.extend(end);
    }

    /// The next events, about `most` bytes; `None` if none wait. The attempt to store a batch must be
    /// [noted](Self::note_attempt) before the next is taken.
    pub(crate) fn take(
        &mut self,
        most: usize,
        at: impl Fn(Instant) -> Timestamp,
        checkpoint: impl FnOnce(bool) -> Option<Checkpoint>,
    ) -> Option<Arc<Batch>> {
        if self.waiting.is_empty() {
            // Under the lock of `push`, so that every later event calls the store.
            if matches!(self.state, QueueState::Called) {
                self.state = QueueState::Empty;
            }
            return None;
        }
        let mut events = Vec::new();
        let mut bytes = 0;
        // The last event may exceed `most`: events are not divided.
        while bytes < most
            && let Some((event, arrived)) = self.waiting.pop_front()
        {
            bytes += weight(&event);
            events.push((event, at(arrived), arrived));
        }
        // The checkpoint records the gap. If this batch fails, there is a new one.
        let checkpoint = checkpoint(std::mem::take(&mut self.follows_gap));
        let batch = Arc::new(Batch::new(events, checkpoint));
        self.state = QueueState::Storing(Arc::clone(&batch));
        Some(batch)
    }

    /// Notes the end of the attempt to store the batch that was taken.
    pub(crate) fn note_attempt(&mut self, is_stored: bool) -> StoreAttempt {
        self.follows_gap |= !is_stored;
        match std::mem::replace(&mut self.state, QueueState::Called) {
            QueueState::Storing(batch) => {
                self.bytes = self.bytes.saturating_sub(batch.bytes);
                StoreAttempt::ToShow(batch)
            }
            QueueState::StoringShown(newest) => StoreAttempt::ShownBefore(newest),
            QueueState::GivenUp => {
                self.state = QueueState::GivenUp;
                StoreAttempt::GivenUp
            }
            QueueState::Empty | QueueState::Called => {
                unreachable!("a batch is taken before an attempt to store it")
            }
        }
    }

    /// Whether events were shown without being stored since the last batch was taken.
    pub(crate) fn follows_gap(&self) -> bool {
        self.follows_gap
    }

    /// Drops all events without showing them, and later ones, too: another machine records the job
    /// now.
    pub(crate) fn give_up(&mut self) {
        *self = Self {
            state: QueueState::GivenUp,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exit, Outcome, wall_now};

    fn shown_without_being_stored(queue: &mut OutputQueue, end_of_job: EndOfJob) -> Vec<LogEvent> {
        let mut shown = Vec::new();
        queue.show_early(end_of_job, |event, _| {
            shown.push(event.clone());
            LineNo::START
        });
        shown
    }

    #[test]
    fn only_a_shared_store_is_waited_for_with_the_end_of_a_job() {
        let end = LogEvent::End(Outcome::Ended(Exit::Status(0)));
        let events = [LogEvent::FinishStreams, end];
        let filled = || {
            let mut queue = OutputQueue::default();
            for event in events.clone() {
                queue.push(event, Instant::now());
            }
            queue
        };

        let mut of_one_process = filled();
        let shown = shown_without_being_stored(&mut of_one_process, EndOfJob::IsShownAtOnce);
        assert_eq!(shown, events);
        assert_eq!(of_one_process.bytes, 0);

        let mut shared = filled();
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
        assert!(matches!(shared.note_attempt(true), StoreAttempt::ToShow(_)));
        assert_eq!(shared.bytes, 0);
    }
}
