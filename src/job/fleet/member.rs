use serde::{Deserialize, Serialize};

use super::{MemberEnd, Printed};
use crate::job::{JobId, Outcome};
use crate::output::Timestamp;

/// One member of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its host.
    pub name: String,
    /// Its job, once it was started.
    pub job: Option<JobId>,
    /// Start time; 0 before.
    pub started_at: Timestamp,
    /// End time; 0 before.
    pub ended_at: Timestamp,
    /// Its outcome.
    pub outcome: Option<Outcome>,
    /// Lines it has printed. Known at its end.
    pub lines: u64,
    /// Size of these lines in bytes, in the clean view.
    pub bytes: u64,
    /// Last of these lines.
    pub last: Vec<String>,
    /// Equal for two members with the same output.
    pub digest: String,
}

impl Member {
    /// A member that has not started.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            job: None,
            started_at: 0,
            ended_at: 0,
            outcome: None,
            lines: 0,
            bytes: 0,
            last: Vec::new(),
            digest: String::new(),
        }
    }

    /// Notes that the member has ended, and its output.
    pub fn note_end(&mut self, outcome: Outcome, printed: Printed, at: Timestamp) {
        (self.lines, self.bytes, self.digest) =
            (printed.lines(), printed.bytes(), printed.digest());
        self.last = printed.into_last();
        (self.outcome, self.ended_at) = (Some(outcome), at);
    }

    /// The member's end, as the roll-out counts it. `None` while it runs.
    pub fn end(&self) -> Option<MemberEnd> {
        self.outcome.as_ref().map(MemberEnd::of)
    }
}
