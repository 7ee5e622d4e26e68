//! The places of jobs in queues. All processes with one store share the list, and a job that runs is in it,
//! too.

use serde::{Deserialize, Serialize};

use sshjobs_job::JobId;

/// Jobs in all queues, oldest first: those that run and those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Queues {
    entries: Vec<QueueEntry>,
}

/// A job in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueEntry {
    pub(crate) job: JobId,
    pub(crate) queue: String,
    /// Its host, or those of a fleet.
    pub(crate) hosts: Vec<String>,
}

/// How many jobs of a queue run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueRule {
    /// Number of jobs, at least 1.
    pub parallel: usize,
    /// Whether `parallel` limits each host separately.
    pub per_host: bool,
}

impl Default for QueueRule {
    fn default() -> Self {
        Self {
            parallel: 1,
            per_host: false,
        }
    }
}

/// Maximum jobs in all queues. The list is one message in NATS, of 256 KiB at least.
const MOST: usize = 1000;

impl Queues {
    /// Adds a job at the end of its queue, unless it has a place. Returns false if there is no room.
    pub(crate) fn join(&mut self, entry: QueueEntry) -> bool {
        if self.entries.iter().any(|known| known.job == entry.job) {
            return true;
        }
        if self.entries.len() >= MOST {
            return false;
        }
        self.entries.push(entry);
        true
    }

    /// Removes a job.
    pub(crate) fn leave(&mut self, job: &JobId) {
        self.entries.retain(|entry| entry.job != *job);
    }

    /// The jobs of the same queue that are ahead of a job and count for it, oldest first. `None` if it has
    /// no place.
    pub(crate) fn ahead_of(&self, job: &JobId, rule: QueueRule) -> Option<Vec<JobId>> {
        let place = self.entries.iter().position(|entry| entry.job == *job)?;
        let own = &self.entries[place];
        Some(
            self.entries[..place]
                .iter()
                .filter(|entry| entry.queue == own.queue)
                .filter(|entry| !rule.per_host || entry.shares_host_with(own))
                .map(|entry| entry.job.clone())
                .collect(),
        )
    }

    /// The number of jobs that must end before a job may start. `None` if it has no place.
    pub(crate) fn waits_for(&self, job: &JobId, rule: QueueRule) -> Option<usize> {
        let ahead = self.ahead_of(job, rule)?;
        if !rule.per_host {
            return Some((ahead.len() + 1).saturating_sub(rule.parallel));
        }
        let own = self.entries.iter().find(|entry| entry.job == *job)?;
        let counts = own.hosts.iter().map(|host| {
            let on_host = self.entries.iter().filter(|entry| entry.hosts.contains(host));
            on_host.filter(|entry| ahead.contains(&entry.job)).count()
        });
        let most = counts.max().unwrap_or_default();
        Some((most + 1).saturating_sub(rule.parallel))
    }
}

impl QueueEntry {
    fn shares_host_with(&self, other: &Self) -> bool {
        self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(jobs: &[(&str, &str, &[&str])]) -> Queues {
        let mut queues = Queues::default();
        for (job, queue, hosts) in jobs {
            assert!(queues.join(QueueEntry {
                job: JobId::from(*job),
                queue: (*queue).to_owned(),
                hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            }));
        }
        queues
    }

    fn rule(parallel: usize, per_host: bool) -> QueueRule {
        QueueRule { parallel, per_host }
    }

    fn waits(queues: &Queues, job: &str, rule: QueueRule) -> Option<usize> {
        queues.waits_for(&JobId::from(job), rule)
    }

    #[test]
    fn jobs_of_a_queue_start_in_order_as_many_as_it_runs_at_a_time() {
        let mut queues = queues(&[
            ("a", "deploy", &["web1"]),
            ("x", "backup", &["web1"]),
            ("b", "deploy", &["web2"]),
            ("c", "deploy", &["web1"]),
        ]);

        let one = rule(1, false);
        assert_eq!(
            ["a", "x", "b", "c"].map(|job| waits(&queues, job, one)),
            [0, 0, 1, 2].map(Some)
        );
        let two = rule(2, false);
        assert_eq!(
            ["a", "b", "c"].map(|job| waits(&queues, job, two)),
            [0, 0, 1].map(Some)
        );
        queues.leave(&JobId::from("a"));
        assert_eq!(
            ["a", "b", "c"].map(|job| waits(&queues, job, one)),
            [None, Some(0), Some(1)]
        );
    }

    #[test]
    fn jobs_on_other_hosts_do_not_count_in_a_queue_for_each_host() {
        let queues = queues(&[
            ("a", "deploy", &["web1"]),
            ("b", "deploy", &["web2"]),
            ("fleet", "deploy", &["web1", "web2"]),
            ("c", "deploy", &["web2"]),
            ("d", "deploy", &["web3"]),
        ]);

        let one = rule(1, true);
        assert_eq!(
            ["a", "b", "fleet", "c", "d"].map(|job| waits(&queues, job, one)),
            [0, 0, 1, 2, 0].map(Some)
        );
    }

    #[test]
    fn a_job_keeps_its_place_when_it_joins_again() {
        let mut queues = queues(&[("a", "deploy", &["web1"]), ("b", "deploy", &["web1"])]);

        assert!(queues.join(QueueEntry {
            job: JobId::from("a"),
            queue: "deploy".to_owned(),
            hosts: Vec::new(),
        }));

        assert_eq!(waits(&queues, "a", QueueRule::default()), Some(0));
        assert_eq!(waits(&queues, "b", QueueRule::default()), Some(1));
    }
}
