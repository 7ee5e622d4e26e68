//! Conditions for the start of a job.

use serde::{Deserialize, Serialize};

use super::id::JobId;

/// Conditions for the start of a job: other jobs, and its place in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Turn {
    /// Jobs that must have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<JobId>,
    /// Jobs that must have succeeded. If one fails, the job is not started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<JobId>,
    /// Name of the queue in which it takes a place once these jobs have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

impl Turn {
    /// Whether the job may start at once.
    pub fn is_now(&self) -> bool {
        self.after.is_empty() && self.after_ok.is_empty() && self.queue.is_none()
    }
}

/// Whether a text is a name for a queue: 1 to 64 ASCII letters, digits, `_`, `.` and `-`.
pub fn is_queue_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
