//! One member of a fleet: waiting, started or ended. Records keep it in a flat form.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{MemberEnd, PrintedSummary};
use crate::{JobId, Outcome};
use sshjobs_output::{Timestamp, time_of, timestamp_of};

/// One member of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredMember", into = "StoredMember")]
pub struct Member {
    /// Its host.
    pub name: String,
    /// Its job, once it was started.
    pub job: Option<JobId>,
    /// Its progress.
    pub progress: MemberProgress,
}

/// Progress of a member of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProgress {
    /// It was not started yet.
    Waiting,
    /// It is being started, or runs.
    Started {
        /// When its start was first attempted.
        at: SystemTime,
    },
    /// It could not be started, and is tried again after a pause.
    Retrying(Box<MemberResult>),
    /// It has ended, or could not be started.
    Ended(Box<MemberResult>),
}

/// The result of a member that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberResult {
    /// When its start was first attempted.
    pub started_at: SystemTime,
    /// When it ended.
    pub ended_at: SystemTime,
    /// Its outcome.
    pub outcome: Outcome,
    /// Number of lines it printed.
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
            progress: MemberProgress::Waiting,
        }
    }

    /// Notes an attempt to start the member. The time of the first attempt counts.
    pub fn note_start(&mut self, now: SystemTime) {
        let at = self.started_at().unwrap_or(now);
        self.progress = MemberProgress::Started { at };
    }

    /// Notes that a member that has ended is tried again. It then has no job.
    pub fn note_retry(&mut self) {
        if let MemberProgress::Ended(result) = &self.progress {
            self.progress = MemberProgress::Retrying(result.clone());
            self.job = None;
        }
    }

    /// Ends a member whose next attempt never begins.
    pub fn give_up(&mut self) {
        if let MemberProgress::Retrying(result) = &self.progress {
            self.progress = MemberProgress::Ended(result.clone());
        }
    }

    /// Notes that the member has ended, and its output.
    pub fn note_end(&mut self, outcome: Outcome, printed: PrintedSummary, now: SystemTime) {
        self.progress = MemberProgress::Ended(Box::new(MemberResult {
            started_at: self.started_at().unwrap_or(now),
            ended_at: now,
            outcome,
            lines: printed.lines(),
            bytes: printed.bytes(),
            digest: printed.digest(),
            last: printed.into_last(),
        }));
    }

    /// When its start was first attempted.
    pub fn started_at(&self) -> Option<SystemTime> {
        match &self.progress {
            MemberProgress::Waiting => None,
            MemberProgress::Started { at } => Some(*at),
            MemberProgress::Retrying(result) | MemberProgress::Ended(result) => {
                Some(result.started_at)
            }
        }
    }

    /// Its result, once it has ended.
    pub fn result(&self) -> Option<&MemberResult> {
        match &self.progress {
            MemberProgress::Ended(result) => Some(result),
            MemberProgress::Waiting
            | MemberProgress::Started { .. }
            | MemberProgress::Retrying(_) => None,
        }
    }

    /// The member without the lines of its output.
    #[must_use]
    pub fn without_lines(mut self) -> Self {
        match &mut self.progress {
            MemberProgress::Retrying(result) | MemberProgress::Ended(result) => result.last.clear(),
            MemberProgress::Waiting | MemberProgress::Started { .. } => {}
        }
        self
    }

    /// The member's end, as the roll-out counts it. `None` before.
    pub fn end(&self) -> Option<MemberEnd> {
        self.result().map(|result| MemberEnd::of(&result.outcome))
    }
}

/// A member as records keep it: 0 and empty values before its start and its end.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredMember {
    name: String,
    job: Option<JobId>,
    started_at: Timestamp,
    ended_at: Timestamp,
    outcome: Option<Outcome>,
    lines: u64,
    bytes: u64,
    last: Vec<String>,
    digest: String,
}

impl From<StoredMember> for Member {
    fn from(stored: StoredMember) -> Self {
        let progress = match stored.outcome {
            Some(outcome) => MemberProgress::Ended(Box::new(MemberResult {
                started_at: time_of(stored.started_at),
                ended_at: time_of(stored.ended_at),
                outcome,
                lines: stored.lines,
                bytes: stored.bytes,
                last: stored.last,
                digest: stored.digest,
            })),
            None if stored.started_at > 0 => MemberProgress::Started {
                at: time_of(stored.started_at),
            },
            None => MemberProgress::Waiting,
        };
        Self {
            name: stored.name,
            job: stored.job,
            progress,
        }
    }
}

impl From<Member> for StoredMember {
    fn from(member: Member) -> Self {
        let started_at = member.started_at().map_or(0, timestamp_of);
        let begun = Self {
            name: member.name,
            job: member.job,
            started_at,
            ..Self::default()
        };
        match member.progress {
            MemberProgress::Waiting
            | MemberProgress::Started { .. }
            | MemberProgress::Retrying(_) => begun,
            MemberProgress::Ended(result) => Self {
                ended_at: timestamp_of(result.ended_at),
                outcome: Some(result.outcome),
                lines: result.lines,
                bytes: result.bytes,
                last: result.last,
                digest: result.digest,
                ..begun
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;

    #[test]
    fn a_member_is_stored_and_read_in_each_state() {
        let mut member = Member::new("web1");
        let waiting = member.clone();
        member.note_start(time_of(5));
        let started = member.clone();
        member.note_end(
            Outcome::Ended(Exit::Status(3)),
            PrintedSummary::default(),
            time_of(9),
        );
        for member in [waiting, started, member] {
            let stored = serde_json::to_string(&member).unwrap();
            assert_eq!(serde_json::from_str::<Member>(&stored).unwrap(), member);
        }
    }

    #[test]
    fn a_member_that_is_not_tried_again_keeps_the_end_of_its_last_attempt() {
        let mut member = Member::new("web1");
        let refused = Outcome::NotStarted("no route".to_owned());
        member.note_start(time_of(5));
        member.note_end(refused.clone(), PrintedSummary::default(), time_of(9));

        member.note_retry();
        assert_eq!(member.end(), None);

        member.give_up();
        assert_eq!(
            member.result().map(|result| &result.outcome),
            Some(&refused)
        );
    }

    #[test]
    fn the_first_attempt_to_start_counts() {
        let mut member = Member::new("web1");
        member.note_start(time_of(5));
        member.note_start(time_of(7));
        assert_eq!(member.started_at(), Some(time_of(5)));
    }
}
