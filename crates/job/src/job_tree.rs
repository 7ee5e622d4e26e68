//! The working tree that a job was given.

use serde::{Deserialize, Serialize};

/// The working tree that a job was given: its command's working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobTree {
    /// The directory on the host.
    pub path: String,
    /// The directory from which it was synced, on the machine of the caller.
    pub source: String,
    /// The commit that was checked out there, if it was a working tree of git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// A hash of its paths and contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Patterns that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Whether sshjobs has chosen the directory. Such a directory is not changed while a job uses it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
}
