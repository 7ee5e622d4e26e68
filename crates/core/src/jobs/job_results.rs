//! The files of a job that were copied back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::FetchedFile;
use sshjobs_output::Timestamp;

/// The files of a job that were copied back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResults {
    /// The directory on the machine of the process that has copied them.
    pub directory: PathBuf,
    /// The copied files, by path.
    pub files: Vec<FetchedFile>,
    /// Files that were not copied, and why, in words.
    pub failed: Vec<String>,
    /// When they were copied.
    pub fetched_at: Timestamp,
}
