//! Which lines of a log are about a job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::AuditError;
use super::event::Event;
use super::files::for_each_line;
use super::line::StoredLine;

/// Selects the lines about one job: the decision that started it with its votes, all decisions on calls
/// about it, and its end.
#[derive(Debug)]
pub struct AboutJob {
    job: String,
    /// Sequence numbers of the decisions that started it. Such a line does not have the job's id.
    starts: BTreeSet<u64>,
    /// The approvals that these decisions used.
    approvals: BTreeSet<String>,
}

impl AboutJob {
    /// Finds the decisions about a job. Reads the whole log.
    ///
    /// # Errors
    /// If a file can't be read.
    pub fn find(log: &Path, job: &str) -> Result<Self, AuditError> {
        let mut about = Self {
            job: job.to_owned(),
            starts: BTreeSet::new(),
            approvals: BTreeSet::new(),
        };
        let mut approval_of = BTreeMap::new();
        for_each_line(log, |line| {
            if let Ok(stored) = serde_json::from_slice::<StoredLine>(&line.bytes) {
                match stored.event {
                    Event::Decision(decided) => {
                        approval_of.extend(decided.approval.map(|approval| (stored.seq, approval)));
                    }
                    Event::Started {
                        decision,
                        job: started,
                    } if started == about.job => {
                        about.starts.insert(decision);
                        about.approvals.extend(approval_of.get(&decision).cloned());
                    }
                    Event::Started { .. }
                    | Event::Opened { .. }
                    | Event::Policy { .. }
                    | Event::Repeated(_)
                    | Event::Voted(_)
                    | Event::Ended(_)
                    | Event::Checkpoint { .. }
                    | Event::Repaired { .. }
                    | Event::Failed { .. }
                    | Event::Closed { .. }
                    | Event::Pruned { .. }
                    | Event::Missed { .. } => {}
                }
            }
            true
        })?;
        Ok(about)
    }

    /// Whether a line is about the job.
    pub fn covers(&self, line: &StoredLine) -> bool {
        match &line.event {
            Event::Decision(decided) => {
                decided.job.as_ref() == Some(&self.job) || self.starts.contains(&line.seq)
            }
            Event::Voted(voted) => self.approvals.contains(&voted.approval),
            Event::Started { job, .. } => *job == self.job,
            Event::Ended(ended) => ended.job == self.job,
            Event::Repeated(repeated) => repeated.job.as_ref() == Some(&self.job),
            Event::Opened { .. }
            | Event::Policy { .. }
            | Event::Checkpoint { .. }
            | Event::Repaired { .. }
            | Event::Failed { .. }
            | Event::Closed { .. }
            | Event::Pruned { .. }
            | Event::Missed { .. } => false,
        }
    }
}

/// The newest lines of a log about a job, at most `most`, the oldest first.
///
/// # Errors
/// If a file can't be read.
pub fn lines_about(log: &Path, job: &str, most: usize) -> Result<Vec<StoredLine>, AuditError> {
    let about = AboutJob::find(log, job)?;
    let mut found = std::collections::VecDeque::new();
    for_each_line(log, |line| {
        let stored = serde_json::from_slice::<StoredLine>(&line.bytes).ok();
        if let Some(stored) = stored.filter(|stored| about.covers(stored)) {
            if found.len() == most {
                found.pop_front();
            }
            found.push_back(stored);
        }
        true
    })?;
    Ok(found.into())
}
