//! The verb fetch: files that a job was asked to give back.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::jobs::JobEntry;
use crate::Service;
use crate::error::Error;
use sshjobs_core::jobs::{FetchedFile, JobResults, TransferProgress};

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
    /// The files.
    #[serde(flatten)]
    pub results: ResultsEntry,
}

/// Files of a job that were copied back, as far as it was asked to give some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ResultsEntry {
    /// Files copied back by fetch; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Vec<FetchedEntry>>,
    /// Their directory, on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_to: Option<String>,
    /// Number of files, if not all are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub fetched_total: Option<usize>,
    /// What was not copied, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub fetch_failed: Vec<String>,
}

/// A file that was copied back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct FetchedEntry {
    /// Path below the job's working directory.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Digest of its content.
    #[schemars(skip)]
    pub sha256: String,
}

/// Maximum files of a job in a list.
const MOST_LISTED: usize = 100;
/// Pause between two looks for files that are being copied.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Service {
    /// Copies the files of a job back, to the directory that the server keeps for them.
    ///
    /// Cancelling leaves whole files.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchReply, Error> {
        let FetchRequest { job_id } = request;
        if let Some(replica) = self.replica_of_job(&job_id).await {
            return self.perform_at(&replica, "fetch", &FetchRequest { job_id }).await;
        }
        let progress = TransferProgress::default();
        let results = self.jobs.fetch(&job_id, None, &progress).await?;
        let results = ResultsEntry::of(results, usize::MAX);
        Ok(FetchReply { job_id, results })
    }

    /// The files of an ended job that were copied back until the deadline, if this process copies them by itself.
    pub(super) async fn results_within(&self, job_id: &str, deadline: Instant) -> ResultsEntry {
        loop {
            if let Some(results) = self.jobs.results_of(job_id).await {
                return ResultsEntry::of(results, MOST_LISTED);
            }
            if !self.jobs.fetches_at_end() || Instant::now() >= deadline {
                return ResultsEntry::default();
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Notes which files of jobs were copied back.
    pub(super) async fn note_results(&self, entries: &mut [JobEntry]) {
        for entry in entries.iter_mut().filter(|entry| !entry.fetch.is_empty()) {
            if let Some(results) = self.jobs.results_of(&entry.job_id).await {
                entry.results = ResultsEntry::of(results, MOST_LISTED);
            }
        }
    }
}

impl ResultsEntry {
    /// The results, with at most so many files.
    pub fn of(results: JobResults, most: usize) -> Self {
        let total = results.files.len();
        let entry = |file: FetchedFile| FetchedEntry {
            path: file.path,
            bytes: file.bytes,
            sha256: file.sha256,
        };
        let has_directory = !results.directory.as_os_str().is_empty();
        Self {
            fetched: Some(results.files.into_iter().take(most).map(entry).collect()),
            fetched_to: has_directory.then(|| results.directory.display().to_string()),
            fetched_total: (total > most).then_some(total),
            fetch_failed: results.failed,
        }
    }
}
