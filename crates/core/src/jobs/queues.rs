//! Queues: who waits in which order, and the changes that a caller may make.
//!
//! A caller that may end a job may also hold, release or move it. The job may overtake only jobs that
//! the caller sees. A whole queue is for admins.

use super::error::Error;
use super::job::Job;
use super::jobs::{Freshness, Jobs};
use crate::runner::{QueueChange, QueueError, QueueStatus};
use sshjobs_job::{Phase, SpecError, is_queue_name};
use sshjobs_store::Filter;

/// Jobs that are looked through for those that a caller sees: all that can be in queues, and more.
const MOST_VISIBLE: usize = 100_000;

impl Jobs {
    /// All queues that have jobs or are held, by name. Also with jobs that the caller does not see.
    ///
    /// # Errors
    /// [`Error::Queue`] if they can't be read.
    pub async fn queues(&self) -> Result<Vec<QueueStatus>, Error> {
        Ok(self.door.runner().queues().await?)
    }

    /// Holds a whole queue, so that none of its jobs starts, or releases it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the caller is not an admin, or the policy does not let it signal jobs
    /// everywhere; [`Error::Queue`] if the queues can't be stored.
    pub async fn hold_queue(&self, name: &str, is_held: bool) -> Result<(), Error> {
        if !is_queue_name(name) {
            return Err(SpecError::QueueName(name.to_owned()).into());
        }
        let permit = self.door.admission.admit_queue(name).await?;
        Ok(self.door.runner().hold_queue(&permit, is_held).await?)
    }

    /// Changes a job's place in its queue. A job that has started is not changed.
    ///
    /// # Errors
    /// [`Error::Queue`]; [`Error::Refused`] if the caller may not signal it.
    pub async fn change_queued(&self, job: &Job, change: QueueChange) -> Result<(), Error> {
        let permit = self.door.admission.admit_signal(job.job.judged()).await?;
        // A version that does not know `has_turn` may have started it.
        if job.status().phase != Phase::Queued {
            return Err(QueueError::NotQueued(job.job.id().clone()).into());
        }
        // By their records: looking a job up could launch it here.
        let filter = Filter {
            limit: MOST_VISIBLE,
            ..Filter::default()
        };
        let (listed, _) = self.list(filter, Freshness::Recorded).await?;
        let visible = listed.into_iter().map(|summary| summary.id).collect();
        Ok(self.door.runner().change_queued(job.with(&permit), change, visible).await?)
    }
}
