//! The verb fetch: files that a job was asked to give back.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::jobs::{JobEntry, ResultsEntry};
use crate::Service;
use crate::error::Error;
use crate::leave_out::is_false;

/// Copy the files of a job back again.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchRequest {
    /// The job.
    pub job_id: String,
}

/// The files that were copied back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FetchReply {
    /// The job's id.
    pub job_id: String,
    /// Whether the copy is still in progress: the same call waits for it again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fetching: bool,
    /// The files.
    #[serde(flatten)]
    pub results: ResultsEntry,
}

/// How long one call waits for a copy.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two looks for files that are being copied.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Service {
    /// Copies the files of a job back, to the directory that the server keeps for them.
    ///
    /// Cancelling ends the wait only.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchReply, Error> {
        let FetchRequest { job_id } = request;
        if let Some(replica) = self.replica_of_job(&job_id).await {
            return self.perform_at(&replica, "fetch", &FetchRequest { job_id }).await;
        }
        // The copy continues without this call.
        let copied = timeout(ANSWER_WITHIN, self.jobs.fetch_kept(&job_id)).await;
        let Ok(results) = copied else {
            return Ok(FetchReply {
                job_id,
                fetching: true,
                results: ResultsEntry::default(),
            });
        };
        Ok(FetchReply {
            job_id,
            fetching: false,
            results: ResultsEntry::of(results?, usize::MAX),
        })
    }

    /// The files of an ended job that were copied back until the deadline, if this process copies them by itself.
    pub(super) async fn results_within(&self, job_id: &str, deadline: Instant) -> ResultsEntry {
        loop {
            if let Some(results) = self.jobs.results_of(job_id).await {
                return ResultsEntry::listed(results);
            }
            if !self.jobs.fetches_at_end(job_id) || Instant::now() >= deadline {
                return ResultsEntry::default();
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Notes which files of jobs were copied back.
    pub(super) async fn note_results(&self, entries: &mut [JobEntry]) {
        for entry in entries.iter_mut().filter(|entry| !entry.fetch.is_empty()) {
            if let Some(results) = self.jobs.results_of(&entry.job_id).await {
                entry.results = ResultsEntry::listed(results);
            }
        }
    }
}
