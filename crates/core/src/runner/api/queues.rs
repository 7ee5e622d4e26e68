//! Queues, for callers who see and change them.

use std::collections::BTreeSet;

use super::runner::Runner;
use crate::admission::{HoldQueue, Permit, SignalJob};
use crate::runner::seen_job::Permitted;
use crate::runner::turn::{
    QueueChange, QueueError, QueueStatus, change_job, hold_queue, list_queues,
};
use sshjobs_job::JobId;

impl Runner {
    /// All queues that have jobs or are held, by name.
    ///
    /// # Errors
    /// [`QueueError::Unusable`].
    pub async fn queues(&self) -> Result<Vec<QueueStatus>, QueueError> {
        list_queues(&self.shared).await
    }

    /// Changes a job that waits in a queue. `visible` has the jobs that it may overtake.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn change_queued(
        &self,
        job: Permitted<'_, SignalJob>,
        change: QueueChange,
        visible: BTreeSet<JobId>,
    ) -> Result<(), QueueError> {
        change_job(&self.shared, &job.job().id, change, visible).await
    }

    /// Holds a whole queue, or releases it.
    ///
    /// # Errors
    /// [`QueueError::Unusable`].
    pub async fn hold_queue(
        &self,
        permit: &Permit<HoldQueue>,
        is_held: bool,
    ) -> Result<(), QueueError> {
        hold_queue(&self.shared, permit.queue(), is_held).await
    }
}
