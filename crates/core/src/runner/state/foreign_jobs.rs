//! Opened jobs of other processes, kept while they are in use.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::registry::JobConnection;
use crate::hosts::Link;
use sshjobs_base::lock::lock;
use sshjobs_job::{Job, JobId};
use sshjobs_store::Record;

/// Jobs that this process does not record, as the store has them: finished jobs and those of other
/// processes.
#[derive(Default)]
pub(crate) struct ForeignJobs {
    known: Mutex<HashMap<JobId, ForeignJob>>,
    /// Jobs that this process owns and does not record, because taking them over has failed.
    to_take_over: Mutex<HashSet<JobId>>,
    /// Hosts that are being handed over. Nothing starts there.
    leaving: Mutex<HashSet<String>>,
    /// Held while a host is handed over, so that no host is handed over twice at once.
    pub(crate) handing_over: tokio::sync::Mutex<()>,
    /// Held while jobs are taken over, so that no job is taken over twice at once.
    pub(crate) adopting: tokio::sync::Mutex<()>,
}

struct ForeignJob {
    job: Arc<Job>,
    record: Record,
    used: Instant,
}

/// Maximum jobs kept in memory, and for how long after their last use.
const MOST_KNOWN: usize = 64;
const KNOWN_FOR: Duration = Duration::from_secs(600);

impl ForeignJobs {
    pub(crate) fn note(&self, record: Record) {
        if let Some(known) = lock(&self.known).get_mut(&record.id) {
            known.record = record;
        }
    }

    pub(crate) fn get(&self, id: &JobId) -> Option<Arc<Job>> {
        let mut known = lock(&self.known);
        let known = known.get_mut(id)?;
        known.used = Instant::now();
        Some(Arc::clone(&known.job))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        lock(&self.known).values().map(|known| Arc::clone(&known.job)).collect()
    }

    /// The record of another process's job, as it was when the job was opened.
    pub(crate) fn record(&self, id: &JobId) -> Option<Record> {
        lock(&self.known).get(id).map(|known| known.record.clone())
    }

    /// Where such a job runs.
    pub(crate) fn place(&self, id: &JobId) -> Option<JobConnection> {
        let record = self.record(id)?;
        Some(JobConnection {
            link: Weak::<Link>::new(),
            machine: record.machine,
        })
    }

    /// Registers a job and returns whether it is new. If another task was faster, returns that
    /// task's job.
    pub(crate) fn take_in(&self, job: Arc<Job>, record: Record) -> (Arc<Job>, bool) {
        let mut known = lock(&self.known);
        let is_new = !known.contains_key(&job.id);
        let entry = known.entry(job.id.clone()).or_insert_with(|| ForeignJob {
            job,
            record,
            used: Instant::now(),
        });
        (Arc::clone(&entry.job), is_new)
    }

    /// Notes that a host is being handed over.
    pub(crate) fn begin_leaving(&self, host: &str) {
        lock(&self.leaving).insert(host.to_owned());
    }

    pub(crate) fn end_leaving(&self, host: &str) {
        lock(&self.leaving).remove(host);
    }

    /// Whether a host is being handed over.
    pub(crate) fn is_leaving(&self, host: &str) -> bool {
        lock(&self.leaving).contains(host)
    }

    /// Notes that a job of this process must be taken over again.
    pub(crate) fn note_to_take_over(&self, id: JobId) {
        lock(&self.to_take_over).insert(id);
    }

    /// Jobs to take over again. Those that fail must be noted again.
    pub(crate) fn take_to_take_over(&self) -> HashSet<JobId> {
        std::mem::take(&mut *lock(&self.to_take_over))
    }

    pub(crate) fn forget(&self, id: &JobId) {
        lock(&self.known).remove(id);
    }

    /// Drops jobs that no caller has used lately.
    pub(crate) fn expire(&self) {
        let mut known = lock(&self.known);
        known.retain(|_, known| known.is_used() || known.used.elapsed() < KNOWN_FOR);
        while known.len() > MOST_KNOWN {
            let unused = known.iter().filter(|(_, known)| !known.is_used());
            // Jobs in use stay, even if the map exceeds its limit.
            let Some((oldest, _)) = unused.min_by_key(|(_, known)| known.used) else {
                return;
            };
            let oldest = oldest.clone();
            known.remove(&oldest);
        }
    }
}

impl ForeignJob {
    /// Whether anything else holds the job.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.job) > 1
    }
}
