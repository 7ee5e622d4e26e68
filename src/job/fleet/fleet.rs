use std::sync::{Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

use super::{FleetCounts, FleetPlan, FleetSummary, Member};
use crate::job::{JobId, Signal};
use crate::lock::lock;

/// The members of a fleet, as far as they have come.
pub struct Fleet {
    members: Mutex<Vec<Member>>,
    stopped: CancellationToken,
    /// The signal that has ended it.
    ended_by: Mutex<Option<Signal>>,
}

impl Fleet {
    /// No member has started.
    pub fn new(plan: &FleetPlan) -> Self {
        Self::of(plan.members.iter().map(|name| Member::new(name)).collect())
    }

    /// The members of a fleet that was begun earlier.
    pub fn of(members: Vec<Member>) -> Self {
        Self { members: Mutex::new(members), stopped: CancellationToken::new(), ended_by: Mutex::default() }
    }

    /// The members, in the order of the plan.
    pub fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        lock(&self.members)
    }

    /// No further member is to start; one that is starting is to get this signal when it has.
    pub fn stop(&self, signal: Signal) {
        *lock(&self.ended_by) = Some(signal);
        self.stopped.cancel();
    }

    /// The signal that has ended it, if one has.
    pub fn ended_by(&self) -> Option<Signal> {
        *lock(&self.ended_by)
    }

    /// Comes when no further member is to start.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// The job of a member, if it has one.
    pub fn job_of(&self, name: &str) -> Option<JobId> {
        self.members().iter().find(|member| member.name == name)?.job.clone()
    }

    /// How many stand how.
    pub fn counts(&self) -> FleetCounts {
        FleetCounts::of(&self.members())
    }

    /// What has become of all.
    pub fn summary(&self) -> FleetSummary {
        FleetSummary::of(&self.members())
    }
}
