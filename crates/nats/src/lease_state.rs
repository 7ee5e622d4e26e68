//! State of leases: the own one, other replicas, and held hosts. No I/O.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Renewals after which held hosts are compared with NATS, once the lease had run out.
const CHECKS: u32 = 3;

pub(super) struct LeaseState {
    pub(super) own: OwnLease,
    pub(super) others: OtherReplicas,
    pub(super) held: HeldHosts,
}

/// The lease of this replica.
pub(super) struct OwnLease {
    /// Revision of its entry. `None` before the first renewal, and after a failed one.
    pub(super) revision: Option<u64>,
    /// Time at which the last successful renewal was sent. No clock of another machine matters.
    pub(super) renewed_at: Option<Instant>,
    /// What this replica is about to do.
    pub(super) plan: ReplicaPlan,
}

/// What this replica knows of the others.
#[derive(Default)]
pub(super) struct OtherReplicas {
    /// Those that were there at the last look.
    pub(super) seen: BTreeMap<String, Replica>,
    /// Those that were not there, and since when.
    pub(super) missing: HashMap<String, Instant>,
    /// Until then a missing replica counts as alive: NATS was out of reach, so that no replica
    /// could renew its lease.
    pub(super) trusted_until: Option<Instant>,
}

impl OtherReplicas {
    /// Counts missing replicas as alive for a while: their leases may have run out only because NATS
    /// could not be reached.
    pub(super) fn trust(&mut self, until: Instant) {
        self.missing.clear();
        self.trusted_until = Some(until);
    }

    /// Notes the replicas that a look has found.
    pub(super) fn note_seen(&mut self, seen: BTreeMap<String, Replica>, now: Instant) {
        let before = std::mem::replace(&mut self.seen, seen);
        self.missing.retain(|name, _| !self.seen.contains_key(name));
        for name in before.into_keys().filter(|name| !self.seen.contains_key(name)) {
            self.missing.insert(name, now);
        }
    }
}

/// Hosts that this replica holds.
#[derive(Default)]
pub(super) struct HeldHosts {
    /// The hosts, with their fencing tokens.
    pub(super) tokens: HashMap<String, u64>,
    /// How often the lease may have run out: another replica may have taken some of the hosts then.
    pub(super) lapses: u64,
    pub(super) check: HostCheck,
}

/// Whether the held hosts must be compared with NATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum HostCheck {
    /// The lease has not run out since the last check.
    #[default]
    Settled,
    /// The lease has run out: this replica may believe that it holds hosts which another one has taken.
    Due,
    /// They were compared, and are compared this many more times, after each renewal: another replica may just
    /// have been about to take one.
    ChecksLeft(u32),
}

impl HeldHosts {
    pub(super) fn note_lapse(&mut self) {
        self.lapses += 1;
        self.check = HostCheck::Due;
    }

    /// Notes a comparison that began after this many lapses.
    pub(super) fn note_check(&mut self, lapses: u64) {
        // If the lease has run out since, the hosts that were read first may be taken now.
        if self.lapses == lapses {
            self.check = match self.check {
                HostCheck::Due => HostCheck::ChecksLeft(CHECKS - 1),
                HostCheck::ChecksLeft(0 | 1) | HostCheck::Settled => HostCheck::Settled,
                HostCheck::ChecksLeft(left) => HostCheck::ChecksLeft(left - 1),
            };
        }
    }
}

/// Entry of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replica {
    /// Description of its process. Missing from the entry of an earlier version.
    #[serde(default)]
    pub(super) process: String,
    /// Name of its machine. Missing from the entry of an earlier version.
    #[serde(default)]
    pub(super) machine: String,
    /// Its plan.
    pub(super) plan: ReplicaPlan,
    /// Missing from the entry of an earlier version.
    #[serde(default)]
    pub(super) figures: Figures,
}

impl Replica {
    /// Description for people.
    pub(super) fn about(&self, name: &str) -> String {
        format!("replica {name} ({} on {})", self.process, self.machine)
    }
}

/// The figures in a replica's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Number of hosts that it holds.
    pub(super) hosts: usize,
    /// Number of its jobs that have not ended.
    pub(super) jobs: usize,
    /// Sequence number of the newest change of a record that it has seen.
    pub(super) newest_record: u64,
}

/// The next step of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReplicaPlan {
    /// Keep its hosts, and take more.
    Stay,
    /// Hand its hosts over, and take no further one.
    Leave,
    /// It has ended.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_hosts_are_compared_three_times_after_each_lapse() {
        let mut held = HeldHosts::default();
        assert_eq!(held.check, HostCheck::Settled);
        held.note_lapse();
        for expected in [
            HostCheck::ChecksLeft(2),
            HostCheck::ChecksLeft(1),
            HostCheck::Settled,
        ] {
            assert_ne!(held.check, HostCheck::Settled);
            held.note_check(held.lapses);
            assert_eq!(held.check, expected);
        }

        held.note_lapse();
        let before = held.lapses;
        held.note_lapse();
        held.note_check(before);
        assert_eq!(held.check, HostCheck::Due, "it began before the last lapse");
    }
}
