//! The files that a job gave back, in lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::{FetchedFile, JobResults};

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
/// Maximum failures of a job in a list.
const MOST_FAILED: usize = 10;

impl ResultsEntry {
    /// The results, for a list.
    pub(in crate::verbs) fn listed(results: JobResults) -> Self {
        let mut listed = Self::of(results, MOST_LISTED);
        listed.fetch_failed.truncate(MOST_FAILED);
        listed
    }

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
