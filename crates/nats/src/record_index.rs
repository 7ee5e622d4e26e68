//! What lists, limits and take-overs need of all records, in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use sshjobs_job::{Caller, JobId};
use sshjobs_output::Timestamp;
use sshjobs_store::{Filter, Record};

/// A summary of every record in the bucket. Each replica has one, and NATS keeps it up to date.
#[derive(Default)]
pub(super) struct RecordIndex {
    /// The newest first, in the order of lists.
    entries: BTreeMap<(Reverse<Timestamp>, JobId), RecordSummary>,
    started_at: HashMap<JobId, Timestamp>,
    /// The highest revision of all changes.
    newest_change: u64,
    /// Records that were removed, with the time of the removal. NATS keeps a marker for each.
    removed: HashMap<JobId, Timestamp>,
}

/// A summary of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordSummary {
    revision: u64,
    caller: Caller,
    host: String,
    label: Option<String>,
    state: &'static str,
    is_member: bool,
    owner: String,
    ended_at: Option<Timestamp>,
    stored_bytes: u64,
}

impl RecordSummary {
    fn new(record: &Record, revision: u64) -> Self {
        Self {
            revision,
            caller: record.caller.clone(),
            host: record.host.clone(),
            label: record.label.clone(),
            state: record.state(),
            is_member: record.member_of.is_some(),
            owner: record.owner.clone(),
            ended_at: record.ended_at,
            stored_bytes: record.stored_bytes,
        }
    }

    fn matches(&self, filter: &Filter) -> bool {
        filter.caller.as_ref().is_none_or(|caller| *caller == self.caller)
            && filter.host.as_ref().is_none_or(|host| *host == self.host)
            && filter.label.as_ref().is_none_or(|label| self.label.as_ref() == Some(label))
            && filter.state.is_none_or(|state| state == self.state)
            && (filter.members || !self.is_member)
    }
}

impl RecordIndex {
    /// Notes a record. Ignores one that is older than the known one: a replica's own writes and
    /// NATS's messages about them arrive in any order.
    pub(super) fn note(&mut self, record: &Record, revision: u64) {
        self.newest_change = self.newest_change.max(revision);
        if let Some(known) = self.entry(&record.id)
            && known.revision >= revision
        {
            return;
        }
        self.drop_entry(&record.id);
        self.started_at.insert(record.id.clone(), record.started_at);
        self.entries.insert(
            (Reverse(record.started_at), record.id.clone()),
            RecordSummary::new(record, revision),
        );
    }

    /// Notes that a record was removed.
    pub(super) fn note_removed(&mut self, id: &JobId, revision: u64, now: Timestamp) {
        self.newest_change = self.newest_change.max(revision);
        if self.entry(id).is_none_or(|known| known.revision < revision) {
            self.drop_entry(id);
            self.removed.insert(id.clone(), now);
        }
    }

    /// Notes that a record is missing from the bucket.
    pub(super) fn note_missing(&mut self, id: &JobId) {
        self.drop_entry(id);
    }

    /// All known jobs.
    pub(super) fn ids(&self) -> impl Iterator<Item = &JobId> {
        self.started_at.keys()
    }

    /// Revision of the newest change that was noted.
    pub(super) fn newest_change(&self) -> u64 {
        self.newest_change
    }

    fn entry(&self, id: &JobId) -> Option<&RecordSummary> {
        let started_at = *self.started_at.get(id)?;
        self.entries.get(&(Reverse(started_at), id.clone()))
    }

    fn drop_entry(&mut self, id: &JobId) {
        if let Some(started_at) = self.started_at.remove(id) {
            self.entries.remove(&(Reverse(started_at), id.clone()));
        }
    }

    /// The newest jobs that match a filter, and the number of all that match.
    pub(super) fn list(&self, filter: &Filter) -> (Vec<JobId>, usize) {
        let mut newest = Vec::new();
        let mut total = 0;
        for ((_, id), entry) in &self.entries {
            if entry.matches(filter) {
                total += 1;
                if newest.len() < filter.limit {
                    newest.push(id.clone());
                }
            }
        }
        (newest, total)
    }

    /// Jobs that have not ended, whose owner and host are selected.
    pub(super) fn unfinished(&self, is_selected: impl Fn(&str, &str) -> bool) -> Vec<JobId> {
        let unfinished = self.entries.iter().filter(|(_, entry)| {
            entry.ended_at.is_none() && is_selected(&entry.owner, &entry.host)
        });
        unfinished.map(|((_, id), _)| id.clone()).collect()
    }

    /// Finished jobs that ended before a time.
    pub(super) fn ended_before(&self, time: Timestamp) -> Vec<JobId> {
        self.finished()
            .filter(|(_, ended_at, _)| *ended_at < time)
            .map(|(id, ..)| id)
            .collect()
    }

    /// Finished jobs, oldest first, whose output must be deleted so that the rest uses at most
    /// `most` bytes.
    pub(super) fn in_excess_of(&self, most: u64) -> Vec<JobId> {
        // Output of running jobs counts, but only that of finished jobs is deleted.
        let total: u64 = self.entries.values().map(|entry| entry.stored_bytes).sum();
        let mut excess = total.saturating_sub(most);
        let mut finished: Vec<_> = self.finished().filter(|(.., bytes)| *bytes > 0).collect();
        finished.sort_by_key(|(_, ended_at, _)| *ended_at);
        let mut jobs = Vec::new();
        for (id, _, bytes) in finished {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            jobs.push(id);
        }
        jobs
    }

    /// Id, time of the end, and stored bytes of each finished job.
    fn finished(&self) -> impl Iterator<Item = (JobId, Timestamp, u64)> {
        self.entries
            .iter()
            .filter_map(|((_, id), entry)| Some((id.clone(), entry.ended_at?, entry.stored_bytes)))
    }

    /// Takes the jobs whose records were removed before a time, so that their markers can be
    /// deleted.
    pub(super) fn take_removed_before(&mut self, time: Timestamp) -> Vec<JobId> {
        let old = self.removed.extract_if(|_, at| *at < time);
        old.map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_job::{Draft, Job};
    use sshjobs_output::RingLimits;

    fn record(host: &str, started_at: Timestamp) -> Record {
        let spec = Draft::new(host, "make").try_into().unwrap();
        let job = Job::new(Caller::local(), spec, RingLimits::default());
        Record {
            started_at,
            owner: "a".to_owned(),
            ..Record::new(&job, None, String::new())
        }
    }

    #[test]
    fn a_list_has_the_newest_first_and_counts_all() {
        let mut index = RecordIndex::default();
        let [old, new, other] =
            [("web1", 1), ("web1", 2), ("web2", 3)].map(|(host, at)| record(host, at));
        for (revision, record) in [&old, &new, &other].into_iter().enumerate() {
            index.note(record, revision as u64 + 1);
        }

        let filter = Filter {
            host: Some("web1".to_owned()),
            limit: 1,
            ..Filter::default()
        };
        assert_eq!(index.list(&filter), (vec![new.id], 2));
    }

    #[test]
    fn an_older_revision_changes_nothing() {
        let mut index = RecordIndex::default();
        let record = record("web1", 1);
        let claimed = Record {
            owner: "b".to_owned(),
            ..record.clone()
        };
        index.note(&claimed, 5);
        index.note(&record, 4);
        index.note_removed(&record.id, 3, 0);

        assert_eq!(index.unfinished(|owner, _| owner == "b"), [record.id]);
        assert!(index.unfinished(|owner, _| owner == "a").is_empty());
    }

    #[test]
    fn the_oldest_output_is_in_excess_first() {
        let mut index = RecordIndex::default();
        let mut ids = Vec::new();
        for (started_at, ended_at) in [(1, Some(30)), (2, Some(20)), (3, None)] {
            let record = Record {
                ended_at,
                stored_bytes: 100,
                ..record("web1", started_at)
            };
            index.note(&record, started_at);
            ids.push(record.id);
        }

        assert_eq!(index.in_excess_of(250), [ids[1].clone()]);
        assert_eq!(index.in_excess_of(150), [ids[1].clone(), ids[0].clone()]);
        assert!(index.in_excess_of(300).is_empty());
        assert_eq!(index.ended_before(25), [ids[1].clone()]);
    }

    #[test]
    fn a_removed_record_leaves_a_marker_once() {
        let mut index = RecordIndex::default();
        let record = record("web1", 1);
        index.note(&record, 1);
        index.note_removed(&record.id, 2, 100);

        assert_eq!(index.list(&Filter::default()).1, 0);
        assert!(index.take_removed_before(100).is_empty());
        assert_eq!(index.take_removed_before(101), [record.id]);
        assert!(index.take_removed_before(101).is_empty());
    }
}
