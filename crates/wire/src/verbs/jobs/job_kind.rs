//! The kinds of jobs in a list, and how many there are of each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a job in a list for people, most urgent first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum JobKind {
    /// It waits for input.
    Waiting,
    /// It runs, or is about to.
    Running,
    /// It waits in a queue, or for other jobs.
    Queued,
    /// It has ended otherwise than with exit status 0.
    Failed,
    /// It has exited with 0.
    Succeeded,
    /// It is a member of a fleet that was not started.
    NotStarted,
}

/// Number of jobs of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Jobs that wait for input.
    pub waiting: usize,
    /// Jobs that run or are about to, without those that wait for input.
    pub running: usize,
    /// Jobs in queues, or after other jobs.
    pub queued: usize,
    /// Jobs that have ended otherwise than with exit status 0.
    pub failed: usize,
    /// All jobs.
    pub all: usize,
}

impl JobCounts {
    /// The counts of jobs of these kinds.
    pub fn of(kinds: &[JobKind]) -> Self {
        let count = |wanted| kinds.iter().filter(|kind| **kind == wanted).count();
        Self {
            waiting: count(JobKind::Waiting),
            running: count(JobKind::Running),
            queued: count(JobKind::Queued),
            failed: count(JobKind::Failed),
            all: kinds.len(),
        }
    }
}
