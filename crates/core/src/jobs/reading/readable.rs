//! A job whose output its caller may read.

use std::ops::Deref;
use std::sync::Arc;

use crate::admission::{Permit, ReadOutput};
use crate::jobs::{Error, Excerpt, ExcerptBudget, Job, Processes, ReadQuery, Reading, Status};
use crate::runner::Permitted;
use sshjobs_job::{Fleet, FleetSummary, Member, RecordingPlace, StoredPieces};
use sshjobs_store::StoreError;

/// A job with leave to read its output, which the policy has given once, for all reads by this handle.
/// A cheap handle; dropping it ends nothing.
#[derive(Clone, Debug)]
pub struct ReadableJob {
    job: Job,
    permit: Arc<Permit<ReadOutput>>,
}

impl ReadableJob {
    pub(crate) fn new(job: Job, permit: Arc<Permit<ReadOutput>>) -> Self {
        Self { job, permit }
    }

    /// The job, for reads.
    pub(crate) fn output(&self) -> Permitted<'_, ReadOutput> {
        self.job.with(&self.permit)
    }

    /// Reads a part of its output by its position, without waiting. A position after the end
    /// returns nothing, without an error. Cancel safe.
    pub async fn read(&self, query: &ReadQuery) -> (Reading, Status) {
        self.output().read(query).await
    }

    /// Its stored output as it arrived, with times, from a place on; the start without one. `None` if its
    /// output is not stored. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Store`] if the store can't be read.
    pub async fn recording(
        &self,
        from: Option<RecordingPlace>,
    ) -> Result<Option<StoredPieces>, Error> {
        let read = self.output().recording(from).await;
        read.map_err(|error| StoreError::Records(error.to_string()).into())
    }

    /// The newest lines in their clean view, at most `max_lines` and `max_bytes` of them. In a
    /// fleet, each begins with the name of its host.
    pub fn last_lines(&self, max_lines: usize, max_bytes: usize) -> Vec<String> {
        if max_lines == 0 {
            return Vec::new();
        }
        let page = self.output().last_page(max_lines, max_bytes);
        page.lines.into_iter().map(|line| self.display(line)).collect()
    }

    /// The start and the end of the output within a budget, with the last lines of stderr, and the
    /// status at that moment. Cancel safe.
    pub async fn excerpt(&self, budget: ExcerptBudget) -> (Excerpt, Status) {
        self.output().excerpt(budget).await
    }

    /// The members of a fleet and their current states, with the last lines of those that have ended.
    pub fn members(&self) -> Vec<Member> {
        self.output().fleet.as_ref().map(Fleet::members).unwrap_or_default()
    }

    /// The outcomes of a fleet's members, grouped by their output. `None` for a job on one host.
    pub fn fleet_summary(&self) -> Option<FleetSummary> {
        let job = self.output();
        Some(job.fleet.as_ref()?.summary(job.spec.fleet.as_ref()?))
    }

    /// The processes of the job as its host describes them, observed there for half a second. `None` if
    /// the host hides its processes.
    ///
    /// # Errors
    /// [`Error::Signal`] if the job has ended, or the host can't be reached.
    pub async fn processes(&self) -> Result<Option<Processes>, Error> {
        Ok(self.door.runner().processes(self.output()).await?)
    }
}

impl Deref for ReadableJob {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}
