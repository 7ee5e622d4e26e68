//! Selects the jobs of a list by what their entries say: the store knows neither which jobs wait for input
//! nor which have failed.

use super::job_kind::JobKind;
use super::jobs::{JobEntry, JobsRequest};
use crate::JobState;

impl JobEntry {
    /// Its kind, for a person who looks at a list.
    pub fn kind(&self) -> JobKind {
        if self.awaiting_input {
            return JobKind::Waiting;
        }
        match self.standing.state {
            // On the wire, a member that was not started has the state `starting`.
            JobState::Starting if self.started_at == 0 => JobKind::NotStarted,
            JobState::Running | JobState::Starting => JobKind::Running,
            JobState::Queued => JobKind::Queued,
            JobState::Exited
            | JobState::Signaled
            | JobState::Lost
            | JobState::Closed
            | JobState::Refused
            | JobState::TimedOut => {
                if self.standing.has_failed() {
                    JobKind::Failed
                } else {
                    JobKind::Succeeded
                }
            }
        }
    }

    /// Its place in a list for people: jobs that wait for input, those that run, those in queues, and all
    /// others.
    pub fn attention(&self) -> JobKind {
        self.kind().min(JobKind::Failed)
    }

    /// Whether this text is in its id, host, label, caller or command, in upper or lower case.
    pub fn mentions(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let fields = [
            Some(&self.job_id),
            Some(&self.host),
            Some(&self.command),
            self.label.as_ref(),
            self.caller.as_ref(),
        ];
        fields.into_iter().flatten().any(|field| field.to_lowercase().contains(&text))
    }
}

impl JobsRequest {
    /// Whether all jobs must be looked at, not only the newest.
    pub(in crate::verbs) fn needs_all_jobs(&self) -> bool {
        self.counts || self.only.is_some() || self.text.is_some()
    }

    /// Whether a job has the text of the request, if there is one.
    pub(in crate::verbs) fn mentioned_by(&self, job: &JobEntry) -> bool {
        self.text.as_ref().is_none_or(|text| job.mentions(text))
    }

    /// Whether a job is of the kind of the request, if there is one.
    pub(in crate::verbs) fn is_for_kind_of(&self, job: &JobEntry) -> bool {
        self.only.is_none_or(|kind| kind == job.kind())
    }

    /// Whether the filters beside `job_id` select a job.
    pub(in crate::verbs) fn selects(&self, job: &JobEntry) -> bool {
        self.host.as_ref().is_none_or(|host| *host == job.host)
            && (self.label.is_none() || self.label == job.label)
            && self.state.is_none_or(|state| state == job.standing.state)
            && self.fleet.as_ref().is_none_or(|fleet| is_member(&job.job_id, fleet))
            && self.mentioned_by(job)
            && self.is_for_kind_of(job)
            && self.limit != Some(0)
    }
}

/// Whether a job is a member of a fleet: its id is that of the fleet, a slash, and more.
fn is_member(job: &str, fleet: &str) -> bool {
    job.strip_prefix(fleet).is_some_and(|rest| rest.starts_with('/'))
}
