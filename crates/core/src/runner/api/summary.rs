//! A job as an entry of a list.

use std::time::SystemTime;

use sshjobs_job::{Caller, Fleet, FleetCounts, Job, JobFacts, JobId, Phase, Status};
use sshjobs_output::time_of;
use sshjobs_store::{Filter, Record};

/// A job in a list.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The job's id.
    pub id: JobId,
    /// The caller who started it.
    pub caller: Caller,
    /// Its specification. For a fleet, `host` has the folded names of its hosts.
    pub facts: JobFacts,
    /// State, times and counts.
    pub status: Status,
    /// The process that records it, if it is not this one. Empty if that process has ended.
    pub owner: Option<String>,
    /// It was lost, and some of its processes may still run.
    pub has_leftovers: bool,
    /// Member counts by state, for a fleet.
    pub members: Option<FleetCounts>,
    /// Time of the last known state. `None` if the state is current.
    pub last_seen_at: Option<SystemTime>,
}

impl Summary {
    /// Whether the job is durable, had not ended by its record, and no process follows it now.
    pub fn is_orphan(&self) -> bool {
        // A queued job is on no host yet.
        let may_run = !matches!(self.status.phase, Phase::Queued | Phase::Ended(_));
        self.facts.durable && may_run && self.members.is_none() && self.owner.as_deref() == Some("")
    }

    /// Summarizes a job of this process, or one opened from the store.
    pub fn of(job: &Job) -> Self {
        Self {
            id: job.id.clone(),
            caller: job.caller.clone(),
            facts: job.spec.facts.clone(),
            status: job.status(),
            owner: None,
            has_leftovers: false,
            members: job.fleet.as_ref().map(Fleet::counts),
            last_seen_at: None,
        }
    }

    pub(crate) fn of_record(record: Record, owner: Option<String>) -> Self {
        let status = record.status();
        let members = record.fleet.is_some().then(|| FleetCounts::of(&record.members));
        let is_orphan = record.durable && record.outcome.is_none() && owner.as_deref() == Some("");
        Self {
            last_seen_at: is_orphan.then(|| time_of(record.seen_at)),
            id: record.id,
            caller: record.caller,
            facts: record.facts,
            status,
            owner,
            has_leftovers: record.has_leftovers,
            members,
        }
    }

    pub(crate) fn fits(&self, filter: &Filter) -> bool {
        filter.host.as_ref().is_none_or(|host| *host == self.facts.host)
            && filter
                .label
                .as_ref()
                .is_none_or(|label| self.facts.label.as_ref() == Some(label))
            && filter.state.is_none_or(|state| state == self.status.phase.name())
    }
}
