use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::registry::Place;
use crate::hosts::Link;
use crate::job::{Job, JobId};
use crate::lock::lock;
use crate::store::Record;

/// Jobs that this process does not record, as the store knows them: finished ones, and those of other processes.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<HashMap<JobId, Known>>);

struct Known {
    job: Arc<Job>,
    record: Record,
    used: Instant,
}

/// Most jobs that are held ready, and for how long after their last use.
const MOST_KNOWN: usize = 64;
const KNOWN_FOR: Duration = Duration::from_secs(600);

impl Elsewhere {
    pub(super) fn note(&self, record: Record) {
        if let Some(known) = lock(&self.0).get_mut(&record.id) {
            known.record = record;
        }
    }

    pub(super) fn get(&self, id: &JobId) -> Option<Arc<Job>> {
        let mut known = lock(&self.0);
        let known = known.get_mut(id)?;
        known.used = Instant::now();
        Some(Arc::clone(&known.job))
    }

    /// The record of a job that is not ours, as it was when the job was opened.
    pub(super) fn record(&self, id: &JobId) -> Option<Record> {
        lock(&self.0).get(id).map(|known| known.record.clone())
    }

    /// Where such a job runs.
    pub(super) fn place(&self, id: &JobId) -> Option<Place> {
        let record = self.record(id)?;
        Some(Place { link: Weak::<Link>::new(), machine: record.machine })
    }

    /// Takes a job in, and tells whether it is new: somebody may have been faster, whose it is then.
    pub(super) fn take_in(&self, job: Arc<Job>, record: Record) -> (Arc<Job>, bool) {
        let mut known = lock(&self.0);
        let is_new = !known.contains_key(&job.id);
        let entry =
            known.entry(job.id.clone()).or_insert_with(|| Known { job, record, used: Instant::now() });
        (Arc::clone(&entry.job), is_new)
    }

    pub(super) fn forget(&self, id: &JobId) {
        lock(&self.0).remove(id);
    }

    /// Lets go of jobs that nobody has asked for lately.
    pub(super) fn expire(&self) {
        let mut known = lock(&self.0);
        let is_used = |known: &Known| Arc::strong_count(&known.job) > 1;
        known.retain(|_, known| is_used(known) || known.used.elapsed() < KNOWN_FOR);
        while known.len() > MOST_KNOWN {
            let unused = known.iter().filter(|(_, known)| !is_used(known));
            let Some((oldest, _)) = unused.min_by_key(|(_, known)| known.used) else { return };
            let oldest = oldest.clone();
            known.remove(&oldest);
        }
    }
}
