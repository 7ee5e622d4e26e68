//! The working tree of a job, in lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::JobTree;

/// The working tree that a job was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TreeEntry {
    /// The directory on the host.
    pub path: String,
    /// The commit that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// A hash of its paths and contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

impl From<JobTree> for TreeEntry {
    fn from(tree: JobTree) -> Self {
        Self {
            path: tree.path,
            commit: tree.commit,
            hash: tree.hash,
        }
    }
}
