use serde::{Deserialize, Serialize};

use super::{MemberEnd, Printed};
use crate::job::{JobId, Outcome};
use crate::output::Timestamp;

/// One member of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its host.
    pub name: String,
    /// Its job, once it was to start.
    pub job: Option<JobId>,
    /// When that was.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What became of it.
    pub outcome: Option<Outcome>,
    /// Lines it has printed; known at its end.
    pub lines: u64,
    /// Bytes of them, in their clean view.
    pub bytes: u64,
    /// The last of them.
    pub last: Vec<String>,
    /// Equal for two that have printed the same.
    pub digest: String,
}

impl Member {
    /// One that has not started.
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

    /// It is over, and has printed this.
    pub fn note_end(&mut self, outcome: Outcome, printed: Printed, at: Timestamp) {
        (self.lines, self.bytes, self.digest) = (printed.lines(), printed.bytes(), printed.digest());
        self.last = printed.into_last();
        (self.outcome, self.ended_at) = (Some(outcome), at);
    }

    /// What its end means for the others; none while it has not ended.
    pub fn end(&self) -> Option<MemberEnd> {
        self.outcome.as_ref().map(MemberEnd::of)
    }
}
