//! The places of jobs in queues. All processes with one store share the list, and a job that runs is in it,
//! too.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use sshjobs_job::JobId;

/// Jobs in all queues, in the order in which they start: those that run and those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Queues {
    entries: Vec<QueueMember>,
    /// Names of held queues, of which no further job starts.
    held: BTreeSet<String>,
}

/// A job in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueMember {
    pub(crate) job: JobId,
    pub(crate) queue: String,
    /// Its host, or those of a fleet.
    pub(crate) hosts: Vec<String>,
    /// Whether it had its turn, so that it starts or runs.
    #[serde(default)]
    pub(crate) has_turn: bool,
    /// Whether it waits until it is released. The jobs behind it pass.
    #[serde(default)]
    pub(crate) is_held: bool,
}

/// Condition for the start of a job in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueTurn {
    /// Nothing: it may start.
    Now,
    /// The ends of this many jobs ahead of it.
    Behind(usize),
    /// Its release.
    JobHeld,
    /// The release of its queue.
    QueueHeld,
}

/// Place to which a waiting job moves in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePlace {
    /// It becomes the next job to start.
    First,
    /// It starts after all others.
    Last,
    /// Number among the waiting jobs; 1 is the next one to start.
    Number(usize),
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
    pub(crate) fn join(&mut self, entry: QueueMember) -> bool {
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

    /// The jobs of the same queue that count for a job, in order: those that had their turn, wherever they
    /// stand, and those before it that wait. `None` if it has no place.
    pub(crate) fn ahead_of(&self, job: &JobId, rule: QueueRule) -> Option<Vec<JobId>> {
        let place = self.entries.iter().position(|entry| entry.job == *job)?;
        let own = &self.entries[place];
        Some(
            self.entries
                .iter()
                .enumerate()
                // A job that was held or moved may stand before one that runs.
                .filter(|(index, entry)| *index != place && (entry.has_turn || *index < place))
                .map(|(_, entry)| entry)
                .filter(|entry| entry.queue == own.queue && !entry.lets_others_pass())
                .filter(|entry| !rule.per_host || entry.shares_host_with(own))
                .map(|entry| entry.job.clone())
                .collect(),
        )
    }

    /// The held jobs of a queue, which no other job waits for.
    pub(crate) fn held_jobs(&self, queue: &str) -> Vec<JobId> {
        let held = self.entries.iter().filter(|entry| entry.lets_others_pass());
        held.filter(|entry| entry.queue == queue)
            .map(|entry| entry.job.clone())
            .collect()
    }

    /// Condition for the start of a job. `None` if it has no place.
    pub(crate) fn turn_of(&self, job: &JobId, rule: QueueRule) -> Option<QueueTurn> {
        let own = self.entries.iter().find(|entry| entry.job == *job)?;
        if own.has_turn {
            return Some(QueueTurn::Now);
        }
        if own.is_held {
            return Some(QueueTurn::JobHeld);
        }
        if self.held.contains(&own.queue) {
            return Some(QueueTurn::QueueHeld);
        }
        let ahead = self.ahead_of(job, rule)?;
        let most = if rule.per_host {
            let counts = own.hosts.iter().map(|host| {
                let on_host = self.entries.iter().filter(|entry| entry.hosts.contains(host));
                on_host.filter(|entry| ahead.contains(&entry.job)).count()
            });
            counts.max().unwrap_or_default()
        } else {
            ahead.len()
        };
        Some(match (most + 1).saturating_sub(rule.parallel) {
            0 => QueueTurn::Now,
            count => QueueTurn::Behind(count),
        })
    }

    /// Gives a job its turn, if it may start. Returns the condition; `None` if it has no place.
    pub(crate) fn take_turn(&mut self, job: &JobId, rule: QueueRule) -> Option<QueueTurn> {
        let turn = self.turn_of(job, rule)?;
        if turn == QueueTurn::Now
            && let Some(entry) = self.entries.iter_mut().find(|entry| entry.job == *job)
        {
            entry.has_turn = true;
        }
        Some(turn)
    }

    /// Lets a waiting job wait until it is released, or releases it. Returns false if no such job waits.
    pub(crate) fn hold(&mut self, job: &JobId, is_held: bool) -> bool {
        let entry = self.entries.iter_mut().find(|entry| entry.job == *job && !entry.has_turn);
        let Some(entry) = entry else { return false };
        entry.is_held = is_held;
        true
    }

    /// Lets all jobs of a queue wait that have not started, or releases them.
    pub(crate) fn hold_queue(&mut self, queue: &str, is_held: bool) {
        if is_held {
            self.held.insert(queue.to_owned());
        } else {
            self.held.remove(queue);
        }
    }

    /// The jobs that a move of a waiting job would put behind it. `None` if no such job waits.
    pub(crate) fn overtaken(&self, job: &JobId, place: QueuePlace) -> Option<Vec<JobId>> {
        let waiting = self.waiting_beside(job)?;
        let before = waiting.iter().position(|index| self.entries[*index].job == *job)?;
        let passed = waiting.get(place.index(waiting.len())..before).unwrap_or_default();
        Some(passed.iter().map(|index| self.entries[*index].job.clone()).collect())
    }

    /// Moves a waiting job among those of its queue that wait. Returns false if no such job waits.
    pub(crate) fn move_to(&mut self, job: &JobId, place: QueuePlace) -> bool {
        let Some(waiting) = self.waiting_beside(job) else { return false };
        let mut order: Vec<QueueMember> =
            waiting.iter().map(|index| self.entries[*index].clone()).collect();
        let Some(before) = order.iter().position(|entry| entry.job == *job) else {
            return false;
        };
        let moved = order.remove(before);
        order.insert(place.index(waiting.len()), moved);
        for (index, entry) in waiting.into_iter().zip(order) {
            self.entries[index] = entry;
        }
        true
    }

    /// Indices of the jobs that wait in the queue of a waiting job.
    fn waiting_beside(&self, job: &JobId) -> Option<Vec<usize>> {
        let own = self.entries.iter().find(|entry| entry.job == *job && !entry.has_turn)?;
        let waits = |entry: &QueueMember| entry.queue == own.queue && !entry.has_turn;
        Some((0..self.entries.len()).filter(|index| waits(&self.entries[*index])).collect())
    }

    /// All jobs in queues, in the order in which they start.
    pub(crate) fn entries(&self) -> &[QueueMember] {
        &self.entries
    }

    /// Names of queues of which no further job starts.
    pub(crate) fn held(&self) -> &BTreeSet<String> {
        &self.held
    }
}

impl QueuePlace {
    /// The index among this many waiting jobs.
    fn index(self, waiting: usize) -> usize {
        let last = waiting.saturating_sub(1);
        match self {
            Self::First => 0,
            Self::Last => last,
            Self::Number(number) => number.saturating_sub(1).min(last),
        }
    }
}

impl QueueMember {
    /// An entry for a job that waits.
    pub(crate) fn new(job: JobId, queue: String, hosts: Vec<String>) -> Self {
        Self {
            job,
            queue,
            hosts,
            has_turn: false,
            is_held: false,
        }
    }

    /// Whether jobs behind it need not wait for it.
    fn lets_others_pass(&self) -> bool {
        self.is_held && !self.has_turn
    }

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
            assert!(queues.join(QueueMember::new(
                JobId::from(*job),
                (*queue).to_owned(),
                hosts.iter().map(|host| (*host).to_owned()).collect(),
            )));
        }
        queues
    }

    fn rule(parallel: usize, per_host: bool) -> QueueRule {
        QueueRule { parallel, per_host }
    }

    fn waits(queues: &Queues, job: &str, rule: QueueRule) -> Option<usize> {
        queues.turn_of(&JobId::from(job), rule).map(|turn| match turn {
            QueueTurn::Now => 0,
            QueueTurn::Behind(count) => count,
            QueueTurn::JobHeld | QueueTurn::QueueHeld => 99,
        })
    }

    fn order(queues: &Queues) -> Vec<&str> {
        queues.entries.iter().map(|entry| entry.job.as_str()).collect()
    }

    #[test]
    fn a_held_job_waits_and_lets_others_pass() {
        let mut queues = queues(&[
            ("a", "deploy", &["web1"]),
            ("b", "deploy", &["web1"]),
            ("c", "deploy", &["web1"]),
        ]);
        let [a, b] = ["a", "b"].map(JobId::from);
        let one = rule(1, false);
        assert_eq!(queues.take_turn(&a, one), Some(QueueTurn::Now));

        assert!(queues.hold(&b, true));
        assert!(!queues.hold(&a, true), "it runs");
        assert_eq!(waits(&queues, "c", one), Some(1));
        queues.leave(&a);
        assert_eq!(queues.turn_of(&b, one), Some(QueueTurn::JobHeld));
        assert_eq!(waits(&queues, "c", one), Some(0));

        assert!(queues.hold(&b, false));
        assert_eq!(waits(&queues, "b", one), Some(0));
        assert_eq!(waits(&queues, "c", one), Some(1));
    }

    #[test]
    fn a_released_or_moved_job_waits_for_those_that_run_behind_it() {
        let mut queues = queues(&[
            ("a", "deploy", &["web1"]),
            ("b", "deploy", &["web1"]),
            ("c", "deploy", &["web2"]),
            ("d", "deploy", &["web2"]),
        ]);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(JobId::from);
        let one = rule(1, false);
        queues.hold(&a, true);
        assert_eq!(queues.take_turn(&b, one), Some(QueueTurn::Now));
        queues.hold(&a, false);
        assert_eq!(queues.turn_of(&a, one), Some(QueueTurn::Behind(1)));

        let on_each_host = rule(1, true);
        assert_eq!(queues.take_turn(&c, on_each_host), Some(QueueTurn::Now));
        assert!(queues.move_to(&d, QueuePlace::First));
        assert_eq!(queues.turn_of(&d, on_each_host), Some(QueueTurn::Behind(1)));
    }

    #[test]
    fn a_held_queue_starts_no_job_and_running_jobs_continue() {
        let mut queues = queues(&[("a", "deploy", &["web1"]), ("b", "deploy", &["web2"])]);
        let [a, b] = ["a", "b"].map(JobId::from);
        let two = rule(2, false);
        queues.take_turn(&a, two);

        queues.hold_queue("deploy", true);

        assert_eq!(queues.turn_of(&a, two), Some(QueueTurn::Now));
        assert_eq!(queues.turn_of(&b, two), Some(QueueTurn::QueueHeld));
        queues.hold_queue("deploy", false);
        assert_eq!(queues.turn_of(&b, two), Some(QueueTurn::Now));
    }

    #[test]
    fn a_job_moves_among_those_that_wait_in_its_queue() {
        let mut queues = queues(&[
            ("a", "deploy", &["web1"]),
            ("x", "backup", &["web1"]),
            ("b", "deploy", &["web1"]),
            ("c", "deploy", &["web1"]),
            ("d", "deploy", &["web1"]),
        ]);
        let [a, c, d] = ["a", "c", "d"].map(JobId::from);
        queues.take_turn(&a, rule(1, false));

        assert_eq!(
            queues.overtaken(&d, QueuePlace::First),
            Some(["b", "c"].map(JobId::from).to_vec())
        );
        assert!(queues.move_to(&d, QueuePlace::First));
        assert_eq!(order(&queues), ["a", "x", "d", "b", "c"]);
        assert!(queues.move_to(&d, QueuePlace::Number(2)));
        assert_eq!(order(&queues), ["a", "x", "b", "d", "c"]);
        assert!(queues.move_to(&d, QueuePlace::Number(99)));
        assert_eq!(order(&queues), ["a", "x", "b", "c", "d"]);
        assert!(queues.move_to(&c, QueuePlace::Last));
        assert_eq!(order(&queues), ["a", "x", "b", "d", "c"]);
        assert!(!queues.move_to(&a, QueuePlace::Last), "it runs");
        assert_eq!(queues.overtaken(&a, QueuePlace::First), None);
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

        assert!(queues.join(QueueMember::new(
            JobId::from("a"),
            "deploy".to_owned(),
            Vec::new(),
        )));

        assert_eq!(waits(&queues, "a", QueueRule::default()), Some(0));
        assert_eq!(waits(&queues, "b", QueueRule::default()), Some(1));
    }
}
