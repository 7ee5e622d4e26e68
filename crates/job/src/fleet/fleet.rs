//! The members of a running fleet: their states, and the switch that stops further starts.

use std::sync::Mutex;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{FleetCounts, FleetPlan, FleetSummary, Member};
use crate::Signal;
use sshjobs_base::lock::{LockGuard, lock};

/// The members of a fleet and their states.
pub struct Fleet {
    members: Mutex<Vec<Member>>,
    stopped: CancellationToken,
    /// The signal that ended the fleet.
    ended_by: Mutex<Option<Signal>>,
    /// Counts changes of members, for those that wait for one.
    changes: watch::Sender<u64>,
}

impl Fleet {
    /// A fleet whose members have not started.
    pub fn new(plan: &FleetPlan) -> Self {
        Self::of(plan.members.iter().map(|name| Member::new(name)).collect())
    }

    /// A fleet that was started earlier.
    pub fn of(members: Vec<Member>) -> Self {
        Self {
            members: Mutex::new(members),
            stopped: CancellationToken::new(),
            ended_by: Mutex::default(),
            changes: watch::Sender::default(),
        }
    }

    /// The members, in the order of the plan.
    pub fn members(&self) -> Vec<Member> {
        lock(&self.members).clone()
    }

    /// The members, locked for a change.
    pub fn lock_members(&self) -> LockGuard<'_, Vec<Member>> {
        lock(&self.members)
    }

    /// Changes a member, and wakes those that wait for a change.
    pub fn change_member<T>(&self, index: usize, change: impl FnOnce(&mut Member) -> T) -> T {
        let changed = change(&mut lock(&self.members)[index]);
        // Unlocked first: a task that wakes locks the members.
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }

    /// Waits until the members are as `is_ready` says. It is called without a lock on them. Cancel
    /// safe.
    pub async fn wait_for_members(&self, is_ready: impl Fn(&[Member]) -> bool) {
        let mut changes = self.changes.subscribe();
        // Fails only without a sender, which lives as long as the fleet.
        drop(changes.wait_for(|_| is_ready(&self.members())).await);
    }

    /// Keeps further members from starting. A member that is being started gets this signal once
    /// it runs.
    pub fn stop(&self, signal: Signal) {
        // First: a task that sees the fleet stopped reads the signal.
        *lock(&self.ended_by) = Some(signal);
        self.stopped.cancel();
    }

    /// The signal that ended the fleet, if any.
    pub fn ended_by(&self) -> Option<Signal> {
        *lock(&self.ended_by)
    }

    /// Resolves when no further member may start.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Member counts by state.
    pub fn counts(&self) -> FleetCounts {
        FleetCounts::of(&self.lock_members())
    }

    /// The outcomes of all members of this plan.
    pub fn summary(&self, plan: &FleetPlan) -> FleetSummary {
        let members = self.lock_members();
        FleetSummary {
            stopped_by: plan.why_stopped(&members),
            ..FleetSummary::of(&members)
        }
    }
}
