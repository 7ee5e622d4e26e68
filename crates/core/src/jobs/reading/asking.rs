//! Reads by a handle that has not asked the policy yet: each asks first.

use std::sync::Arc;

use regex::Regex;

use super::readable::ReadableJob;
use crate::jobs::{
    Error, Follow, Job, LineNo, Lines, PageQuery, Processes, ReadQuery, Reading, SearchQuery,
    SearchResult, Status, Tail, Wait,
};
use sshjobs_policy::Verb;

impl Job {
    /// The job with leave to read its output by a verb: tail, read, search or run. A handle that came with
    /// a run has leave for all reads, and nothing is asked.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn readable(&self, verb: Verb) -> Result<ReadableJob, Error> {
        let permit = match &self.reading {
            Some(permit) => Arc::clone(permit),
            None => Arc::new(self.door.admission.admit_reading(verb, self.job.judged()).await?),
        };
        Ok(ReadableJob::new(self.clone(), permit))
    }

    /// The job with leave to read its output, if the policy allows the caller any of its lines. For
    /// replies that may contain some.
    pub async fn readable_if_allowed(&self) -> Option<ReadableJob> {
        let permit = match &self.reading {
            Some(permit) => Arc::clone(permit),
            None => Arc::new(self.door.admission.reading_if_allowed(self.job.judged()).await?),
        };
        Some(ReadableJob::new(self.clone(), permit))
    }

    /// Reads the lines after the query's cursor. Waits for news if there are none.
    ///
    /// Reading changes nothing: the same call returns the same answer until lines are evicted.
    /// Cancelling ends the wait.
    ///
    /// # Errors
    /// [`Error::TooSlow`] if a pattern takes too long for any result; [`Error::Refused`].
    pub async fn tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, Error> {
        self.readable(Verb::Tail).await?.tail(query, wait).await
    }

    /// Reads a part of its output by its position, without waiting. A position after the end
    /// returns nothing, without an error. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn read(&self, query: &ReadQuery) -> Result<(Reading, Status), Error> {
        Ok(self.readable(Verb::Read).await?.read(query).await)
    }

    /// Finds the lines that match a pattern. Does not wait. Cancel safe.
    ///
    /// # Errors
    /// [`Error::TooSlow`] if the pattern takes too long for any result; [`Error::Refused`].
    pub async fn search(&self, query: SearchQuery, pattern: Regex) -> Result<SearchResult, Error> {
        self.readable(Verb::Search).await?.search(query, pattern).await
    }

    /// The processes of the job as its host describes them, observed there for half a second. `None` if
    /// the host hides its processes.
    ///
    /// # Errors
    /// [`Error::Signal`] if the job has ended, or the host can't be reached; [`Error::Refused`].
    pub async fn processes(&self) -> Result<Option<Processes>, Error> {
        self.readable(Verb::Read).await?.processes().await
    }

    /// Its lines as they arrive, from the first one on, until the job ends.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn lines(&self) -> Result<Lines, Error> {
        self.lines_after(LineNo::START).await
    }

    /// Its lines after a cursor, as they arrive, until the job ends.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn lines_after(&self, cursor: LineNo) -> Result<Lines, Error> {
        Ok(self.readable(Verb::Tail).await?.lines_after(cursor))
    }

    /// Its bytes as they arrive, from the first one on, until the job ends.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn follow(&self) -> Result<Follow, Error> {
        Ok(self.readable(Verb::Tail).await?.follow())
    }
}
