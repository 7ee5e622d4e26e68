//! The observer of the runner.

use std::sync::Arc;

#[cfg(feature = "files")]
use super::jobs_to_fetch::JobsToFetch;
use super::notify::Notifier;
use crate::admission::Auditor;
use crate::runner::Observer;
use sshjobs_job::{Job, Outcome};

/// Passes what happens to jobs to the audit log, to notifications, and to those who copy their files back.
pub(super) struct JobObserver {
    pub(super) auditor: Arc<Auditor>,
    pub(super) notifier: Notifier,
    #[cfg(feature = "files")]
    pub(super) to_fetch: Arc<JobsToFetch>,
}

impl Observer for JobObserver {
    fn note_begin(&self, job: &Arc<Job>) {
        self.notifier.note_begin(job);
    }

    fn note_end(&self, job: &Job, outcome: &Outcome) {
        self.auditor.note_end(job);
        self.notifier.note_end(job, outcome);
        #[cfg(feature = "files")]
        self.to_fetch.note(job, outcome);
    }
}
