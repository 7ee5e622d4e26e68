//! All jobs of this process, by id and by key, with tombstones of expired ones. Its lock is
//! never held across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::SpawnError;
use super::limits::Limits;
use super::lookup::{Lookup, Tombstone};
use super::order::Key;
use super::stdin::JobStdin;
use crate::hosts::Link;
use sshjobs_job::{Caller, Job, JobId, JobSpec, MachineId, Scope};

/// Every job the runner knows: running, finished and kept, or only a tombstone.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) jobs: HashMap<JobId, RegisteredJob>,
    pub(crate) by_key: HashMap<Key, JobId>,
    /// Ids of finished jobs, oldest first.
    finished: VecDeque<JobId>,
    /// Number of unfinished jobs by host.
    running_on: HashMap<String, usize>,
    /// Number of unfinished fleets. They have a limit of their own, because their members count as jobs.
    running_fleets: usize,
    pub(crate) graves: HashMap<JobId, Grave>,
    grave_order: VecDeque<JobId>,
    /// Key of the fingerprints of specifications.
    pub(crate) secret: [u8; 32],
    /// Number of jobs registered to be started.
    taken_in: u64,
    /// Counts changes by caller: a job was registered, ended or was removed.
    pub(crate) changes: watch::Sender<HashMap<Caller, u64>>,
}

pub(crate) struct RegisteredJob {
    pub(crate) job: Arc<Job>,
    key: Option<Key>,
    progress: JobProgress,
    /// Where the job runs, or ran: its processes may outlive it.
    place: Option<JobConnection>,
    /// The store has the job and all of its output.
    is_stored: bool,
}

/// Progress of a job in this process.
enum JobProgress {
    Starting {
        /// Cancels the start.
        abandon: CancellationToken,
        /// The id of the job was given to a caller, so a failed start stays listed.
        is_visible: bool,
    },
    /// The job is recorded here.
    Running {
        stdin: Arc<JobStdin>,
    },
    /// The job continues without a recorder in this process.
    Detached,
    Finished,
}

impl RegisteredJob {
    fn is_finished(&self) -> bool {
        matches!(self.progress, JobProgress::Finished)
    }

    fn must_end_with_us(&self) -> bool {
        let JobProgress::Running { stdin } = &self.progress else { return false };
        !stdin.controls().outlives_us() && !self.job.is_over()
    }
}

/// Where a job runs.
#[derive(Clone)]
pub(crate) struct JobConnection {
    /// The connection that its channel is on.
    pub(crate) link: Weak<Link>,
    /// The machine at the other end, if it reported one.
    pub(crate) machine: Option<MachineId>,
}

/// The tombstone of a job and its key.
pub(crate) struct Grave {
    pub(crate) tombstone: Tombstone,
    key: Option<Key>,
    /// Fingerprint of its specification, which itself is not kept because of its secrets.
    pub(crate) spec: String,
    since: Instant,
}

/// Maximum tombstones, and how long they are kept.
const MOST_GRAVES: usize = 10_000;
const GRAVE_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Registry {
    /// An empty registry. `secret` is the key of the fingerprints.
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self {
            secret,
            ..Self::default()
        }
    }

    /// Searches for a job id. A job out of scope is unknown.
    pub(crate) fn lookup(&self, scope: &Scope, id: &JobId) -> Lookup {
        match (self.jobs.get(id), self.graves.get(id)) {
            (Some(entry), _) if scope.has(&entry.job.caller) => {
                Lookup::Found(Arc::clone(&entry.job))
            }
            (None, Some(grave)) if scope.has(&grave.tombstone.caller) => {
                Lookup::Expired(Box::new(grave.tombstone.clone()))
            }
            _ => Lookup::Unknown,
        }
    }

    pub(crate) fn check_room(&self, spec: &JobSpec, limits: &Limits) -> Result<(), SpawnError> {
        if spec.fleet.is_some() {
            return if self.running_fleets < limits.max_jobs {
                Ok(())
            } else {
                Err(SpawnError::Capacity {
                    running: self.running_fleets,
                    place: "on many hosts".to_owned(),
                })
            };
        }
        let host = &spec.host;
        let running = self.jobs.len() - self.finished.len() - self.running_fleets;
        if running >= limits.max_jobs {
            return Err(SpawnError::Capacity {
                running,
                place: "in all".to_owned(),
            });
        }
        let on_host = self.running_on.get(host).copied().unwrap_or_default();
        if on_host >= limits.max_jobs_per_host {
            return Err(SpawnError::Capacity {
                running: on_host,
                place: format!("on {host}"),
            });
        }
        Ok(())
    }

    /// Registers a job that is about to start. The returned token cancels the start.
    pub(crate) fn insert(&mut self, job: Arc<Job>, key: Option<Key>) -> CancellationToken {
        self.taken_in += 1;
        self.enter(job, key)
    }

    fn enter(&mut self, job: Arc<Job>, key: Option<Key>) -> CancellationToken {
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), job.id.clone());
        }
        let abandon = CancellationToken::new();
        let id = job.id.clone();
        let token = abandon.clone();
        self.note_change(&job.caller);
        self.runs_on_host(&job);
        let entry = RegisteredJob {
            job,
            key,
            progress: JobProgress::Starting {
                abandon,
                is_visible: false,
            },
            place: None,
            is_stored: false,
        };
        self.jobs.insert(id, entry);
        token
    }

    /// Notes that this process follows a durable job, with its stdin and its machine.
    pub(crate) fn note_followed(
        &mut self,
        id: &JobId,
        stdin: Arc<JobStdin>,
        link: Option<&Arc<Link>>,
    ) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        if entry.is_finished() {
            return;
        }
        entry.progress = JobProgress::Running { stdin };
        if let Some(link) = link {
            entry.place = Some(JobConnection {
                link: Arc::downgrade(link),
                machine: link.machine(),
            });
        }
    }

    /// Registers a job whose process has ended. The returned token cancels the start of a job that was
    /// queued.
    pub(crate) fn adopt(
        &mut self,
        job: Arc<Job>,
        key: Option<Key>,
        machine: Option<MachineId>,
    ) -> CancellationToken {
        let id = job.id.clone();
        // Another process has counted it as started.
        let abandon = self.enter(job, key);
        self.mark_visible(&id);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.is_stored = true;
            entry.place = Some(JobConnection {
                link: Weak::new(),
                machine,
            });
        }
        abandon
    }

    pub(crate) fn stdin(&self, id: &JobId) -> Option<Arc<JobStdin>> {
        match &self.jobs.get(id)?.progress {
            JobProgress::Running { stdin } => Some(Arc::clone(stdin)),
            JobProgress::Starting { .. } | JobProgress::Detached | JobProgress::Finished => None,
        }
    }

    /// A job that is kept here, in whatever state.
    pub(crate) fn kept(&self, id: &JobId) -> Option<Arc<Job>> {
        Some(Arc::clone(&self.jobs.get(id)?.job))
    }

    pub(crate) fn place(&self, id: &JobId) -> Option<JobConnection> {
        self.jobs.get(id)?.place.clone()
    }

    /// Whether this process is starting the job.
    pub(crate) fn is_starting(&self, id: &JobId) -> bool {
        let entry = self.jobs.get(id);
        entry.is_some_and(|entry| matches!(entry.progress, JobProgress::Starting { .. }))
    }

    /// Cancels the start of a job.
    pub(crate) fn abandon(&self, id: &JobId) {
        if let Some(entry) = self.jobs.get(id)
            && let JobProgress::Starting { abandon, .. } = &entry.progress
        {
            abandon.cancel();
        }
    }

    /// Whether a job is kept. A job that failed to start, and whose id no caller has, is not.
    pub(crate) fn is_known(&self, id: &JobId) -> bool {
        self.jobs.contains_key(id)
    }

    /// Marks a starting job as visible, so that a failed start stays listed. Returns false if it is
    /// gone already.
    pub(crate) fn mark_visible(&mut self, id: &JobId) -> bool {
        let Some(entry) = self.jobs.get_mut(id) else { return false };
        if let JobProgress::Starting { is_visible, .. } = &mut entry.progress {
            *is_visible = true;
        }
        true
    }

    /// Notes that a job failed to start. Removes it unless a caller has its id. Its key can be used
    /// again.
    pub(crate) fn fail(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        let is_hidden = matches!(
            entry.progress,
            JobProgress::Starting {
                is_visible: false,
                ..
            }
        );
        if !is_hidden {
            if let Some(key) = entry.key.take() {
                self.by_key.remove(&key);
            }
            self.finish(id);
        } else {
            self.remove(id);
        }
    }

    /// Notes that a job has ended. It is kept among the finished ones.
    pub(crate) fn finish(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id)
            && !entry.is_finished()
        {
            // Drops the controls: a later write fails, and a signal looks for remaining processes.
            entry.progress = JobProgress::Finished;
            self.finished.push_back(id.clone());
            let job = Arc::clone(&entry.job);
            self.note_change(&job.caller);
            self.runs_no_more(&job);
        }
    }

    fn runs_on_host(&mut self, job: &Job) {
        if job.fleet.is_some() {
            self.running_fleets += 1;
        } else {
            *self.running_on.entry(job.spec.host.clone()).or_default() += 1;
        }
    }

    fn runs_no_more(&mut self, job: &Job) {
        let host = &job.spec.host;
        if job.fleet.is_some() {
            self.running_fleets -= 1;
        } else if let Some(running) = self.running_on.get_mut(host) {
            *running -= 1;
            if *running == 0 {
                self.running_on.remove(host);
            }
        }
    }

    /// Removes a job's entry and uncounts it.
    fn take_out(&mut self, id: &JobId) -> Option<RegisteredJob> {
        let entry = self.jobs.remove(id)?;
        self.note_change(&entry.job.caller);
        if !entry.is_finished() {
            self.runs_no_more(&entry.job);
        } else if self.finished.front() == Some(id) {
            // The usual case: the oldest job is removed.
            self.finished.pop_front();
        } else {
            self.finished.retain(|finished| finished != id);
        }
        Some(entry)
    }

    fn note_change(&self, caller: &Caller) {
        self.changes
            .send_modify(|counts| *counts.entry(caller.clone()).or_default() += 1);
    }

    /// Notes that the store has a job.
    pub(crate) fn note_stored(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.is_stored = true;
        }
    }

    /// Drops a finished job that the store has. Returns false if the store does not have it.
    pub(crate) fn evict_stored(&mut self, id: &JobId) -> bool {
        let is_stored = self.jobs.get(id).is_some_and(|entry| entry.is_stored);
        if is_stored {
            self.remove(id);
        }
        is_stored
    }

    /// Drops a job that another machine has taken over.
    pub(crate) fn give_up(&mut self, id: &JobId) -> Option<Arc<Job>> {
        let job = self.jobs.get(id).map(|entry| Arc::clone(&entry.job))?;
        // Before it is removed: readers may still have it, and get no further line from it.
        job.note_given_up();
        // If it waits for its turn, it does so elsewhere now.
        self.abandon(id);
        self.remove(id);
        Some(job)
    }

    /// Notes that a job continues without a recorder in this process.
    pub(crate) fn detach(&mut self, job: &Arc<Job>) {
        // A job that was given up may have been adopted again since, under the same id.
        if let Some(entry) = self.jobs.get_mut(&job.id)
            && Arc::ptr_eq(&entry.job, job)
        {
            entry.progress = JobProgress::Detached;
            entry.place = None;
        }
    }

    /// A job that is being started, also if its caller does not know it yet.
    pub(crate) fn starting_with_id(&self, id: &JobId) -> Option<Arc<Job>> {
        let entry = self.jobs.get(id)?;
        matches!(entry.progress, JobProgress::Starting { .. }).then(|| Arc::clone(&entry.job))
    }

    /// The jobs that are being started.
    pub(crate) fn starting(&self) -> Vec<Arc<Job>> {
        self.jobs
            .values()
            .filter(|entry| matches!(entry.progress, JobProgress::Starting { .. }))
            .map(|entry| Arc::clone(&entry.job))
            .collect()
    }

    /// The running jobs that must not outlive this process.
    ///
    /// A job that has ended is excluded, even while its entry is unfinished: its background
    /// children belong to the user and keep running.
    pub(crate) fn to_end(&self) -> Vec<Arc<Job>> {
        self.jobs
            .values()
            .filter(|entry| entry.must_end_with_us())
            .map(|entry| Arc::clone(&entry.job))
            .collect()
    }

    /// The jobs that have ended, and whose recorders have not noted that yet.
    pub(crate) fn ended_and_not_finished(&self) -> Vec<Arc<Job>> {
        self.jobs
            .values()
            .filter(|entry| !entry.is_finished() && entry.job.is_over())
            .map(|entry| Arc::clone(&entry.job))
            .collect()
    }

    /// Removes a job without a tombstone.
    fn remove(&mut self, id: &JobId) {
        let Some(entry) = self.take_out(id) else { return };
        if let Some(key) = entry.key {
            self.by_key.remove(&key);
        }
    }

    /// Replaces a finished job by a tombstone with its outcome. Its key stays in use as long as the
    /// tombstone.
    pub(crate) fn bury(&mut self, id: &JobId) {
        let Some(entry) = self.take_out(id) else { return };
        let RegisteredJob { job, key, .. } = entry;
        let caller = job.caller.clone();
        let host = job.spec.host.clone();
        let tombstone = Tombstone {
            id: id.clone(),
            caller,
            host,
            status: job.status(),
        };
        let spec = job.spec.fingerprint(&self.secret);
        self.grave_order.push_back(id.clone());
        self.graves.insert(
            id.clone(),
            Grave {
                tombstone,
                key,
                spec,
                since: Instant::now(),
            },
        );
        self.clear_graves();
    }

    /// Drops tombstones that are too old or too many.
    pub(crate) fn clear_graves(&mut self) {
        while let Some(oldest) = self.grave_order.front() {
            let is_old =
                self.graves.get(oldest).is_none_or(|grave| grave.since.elapsed() >= GRAVE_KEPT);
            if !is_old && self.grave_order.len() <= MOST_GRAVES {
                return;
            }
            let grave = self.graves.remove(oldest);
            if let Some(key) = grave.and_then(|grave| grave.key)
                // An adopted job may have the key by now: its process used it after
                // this job was deleted.
                && self.by_key.get(&key) == Some(oldest)
            {
                self.by_key.remove(&key);
            }
            self.grave_order.pop_front();
        }
    }

    /// The jobs that the store does not have.
    pub(crate) fn unstored(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|entry| !entry.is_stored).map(|entry| &entry.job)
    }

    /// Number of running jobs, of finished jobs that are kept, and of all jobs registered so far.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        (
            self.jobs.len() - self.finished.len(),
            self.finished.len(),
            self.taken_in,
        )
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|entry| !entry.is_finished()).map(|entry| &entry.job)
    }

    /// The jobs that this process records.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &Arc<Job>> {
        let recorded =
            |entry: &&RegisteredJob| matches!(entry.progress, JobProgress::Running { .. });
        self.jobs.values().filter(recorded).map(|entry| &entry.job)
    }

    /// The finished jobs, oldest first.
    pub(crate) fn finished(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.finished.iter().filter_map(|id| self.jobs.get(id)).map(|entry| &entry.job)
    }
}

#[cfg(test)]
mod tests;
