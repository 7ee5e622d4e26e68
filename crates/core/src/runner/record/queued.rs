//! The far end of jobs whose events come from a queue: durable jobs and fleets.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::recording::{RecordingTask, record_queued};
use crate::runner::state::{Growth, RunnerState};
use sshjobs_job::{Announcements, Backlog, FarEnd, FarEvent, Job, Recorder};

/// Takes the events of a job from a bounded queue.
pub(crate) struct QueuedFarEnd {
    events: mpsc::Receiver<FarEvent>,
    backlog: Backlog,
    /// Counts output that no other far end has counted.
    counting: Option<OutputCount>,
}

/// Counts the output of a far end for the limit over all jobs and for monitoring.
pub(crate) struct OutputCount {
    pub(crate) growth: Arc<Growth>,
    /// Bytes of output after which the limit over all jobs is enforced.
    pub(crate) unseen: usize,
}

impl QueuedFarEnd {
    /// While the store is behind, events stay in the queue. It then fills, and the sender has to wait.
    pub(crate) fn new(events: mpsc::Receiver<FarEvent>, backlog: Backlog) -> Self {
        Self {
            events,
            backlog,
            counting: None,
        }
    }

    /// Counts the output of this far end, which must not be counted elsewhere.
    pub(crate) fn counted(self, counting: OutputCount) -> Self {
        Self {
            counting: Some(counting),
            ..self
        }
    }
}

impl FarEnd for QueuedFarEnd {
    async fn next(&mut self) -> FarEvent {
        // The sender is dropped when this process stops following: the job continues, unrecorded.
        let event = self.events.recv().await.unwrap_or(FarEvent::Detached);
        if let (Some(counting), FarEvent::Data(_, bytes)) = (&self.counting, &event) {
            counting.growth.note(bytes.len(), counting.unseen);
        }
        event
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// Records a durable job or a fleet in a task of the runner. Its output announces no process group.
pub(crate) fn record_queued_in_task(
    shared: &Arc<RunnerState>,
    job: &Arc<Job>,
    far_end: QueuedFarEnd,
) {
    let recorder = Recorder::new(Announcements::new(&job.mark, 0), Duration::ZERO);
    let recording = RecordingTask::new(far_end, Arc::clone(job), recorder);
    shared.spawn_task(record_queued(Arc::clone(shared), recording));
}
