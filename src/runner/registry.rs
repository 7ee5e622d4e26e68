use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::stdin::Stdin;
use super::{Key, Limits, Lookup, SpawnError, Tombstone};
use crate::hosts::Link;
use crate::job::{Caller, Job, JobId, MachineId, Scope};

/// Every job the runner knows: running, finished and kept, or finished and gone.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) jobs: HashMap<JobId, Entry>,
    pub(super) by_key: HashMap<Key, JobId>,
    /// The finished ones, oldest first.
    finished: VecDeque<JobId>,
    pub(super) graves: HashMap<JobId, Grave>,
    grave_order: VecDeque<JobId>,
    /// What fingerprints of specs are keyed with.
    pub(super) secret: [u8; 32],
    /// Jobs that were taken in to be started.
    taken_in: u64,
    /// How often jobs of a caller were taken in, ended or went.
    pub(super) changes: watch::Sender<HashMap<Caller, u64>>,
}

pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    /// There while the job runs.
    stdin: Option<Arc<Stdin>>,
    place: Option<Place>,
    /// Ends the start of a job that has not started.
    abandon: CancellationToken,
    /// Somebody was told its id before it had started.
    told: bool,
    key: Option<Key>,
    finished: bool,
    /// The store has it, with all that it prints.
    stored: bool,
}

/// Where a job runs.
#[derive(Clone)]
pub(super) struct Place {
    /// The connection that its channel is on.
    pub(super) link: Weak<Link>,
    /// The machine at the other end, if it has told.
    pub(super) machine: Option<MachineId>,
}

/// What is kept of a job that is gone.
pub(super) struct Grave {
    pub(super) tombstone: Tombstone,
    key: Option<Key>,
    /// The fingerprint of its spec, which must not be kept for its secrets.
    pub(super) spec: String,
    since: Instant,
}

/// Maximum expired jobs that are remembered, and for how long.
const MOST_GRAVES: usize = 10_000;
const GRAVE_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Registry {
    /// No jobs yet; fingerprints are keyed with `secret`.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret, ..Self::default() }
    }

    /// What is known under a job's name. A job out of scope is unknown.
    pub(super) fn lookup(&self, scope: &Scope, id: &JobId) -> Lookup {
        match (self.jobs.get(id), self.graves.get(id)) {
            (Some(entry), _) if scope.has(&entry.job.caller) => Lookup::Found(Arc::clone(&entry.job)),
            (None, Some(grave)) if scope.has(&grave.tombstone.caller) => {
                Lookup::Expired(Box::new(grave.tombstone.clone()))
            }
            _ => Lookup::Unknown,
        }
    }

    pub(super) fn check_room(&self, host: &str, limits: &Limits) -> Result<(), SpawnError> {
        let running = self.jobs.len() - self.finished.len();
        if running >= limits.max_jobs {
            return Err(SpawnError::Capacity { running, place: "in all".to_owned() });
        }
        let on_host = self.running().filter(|job| job.spec.host == host).count();
        if on_host >= limits.max_jobs_per_host {
            return Err(SpawnError::Capacity { running: on_host, place: format!("on {host}") });
        }
        Ok(())
    }

    /// Takes a job in that is about to start; the token ends the start.
    pub(super) fn insert(&mut self, job: Arc<Job>, key: Option<Key>) -> CancellationToken {
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), job.id.clone());
        }
        let abandon = CancellationToken::new();
        let (id, token) = (job.id.clone(), abandon.clone());
        self.note_change(&job.caller);
        let entry = Entry {
            job,
            stdin: None,
            place: None,
            abandon,
            told: false,
            key,
            finished: false,
            stored: false,
        };
        self.jobs.insert(id, entry);
        self.taken_in += 1;
        token
    }

    /// A job has started: what it reads from, and where it runs.
    pub(super) fn start(&mut self, id: &JobId, stdin: Arc<Stdin>, link: &Arc<Link>) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.stdin = Some(stdin);
            entry.place = Some(Place { link: Arc::downgrade(link), machine: link.machine.clone() });
        }
    }

    /// A durable job is followed from here: what it reads from, and where it runs.
    pub(super) fn start_durable(&mut self, id: &JobId, stdin: Arc<Stdin>, link: Option<&Arc<Link>>) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.stdin = Some(stdin);
            if let Some(link) = link {
                entry.place = Some(Place { link: Arc::downgrade(link), machine: link.machine.clone() });
            }
        }
    }

    /// Takes in a job that another process has left.
    pub(super) fn adopt(&mut self, job: Arc<Job>, key: Option<Key>, machine: Option<MachineId>) {
        let id = job.id.clone();
        self.insert(job, key);
        if let Some(entry) = self.jobs.get_mut(&id) {
            (entry.stored, entry.told) = (true, true);
            entry.place = Some(Place { link: Weak::new(), machine });
        }
    }

    pub(super) fn stdin(&self, id: &JobId) -> Option<Arc<Stdin>> {
        self.jobs.get(id)?.stdin.clone()
    }

    pub(super) fn place(&self, id: &JobId) -> Option<Place> {
        self.jobs.get(id)?.place.clone()
    }

    /// Ends the start of a job that has not started.
    pub(super) fn abandon(&self, id: &JobId) {
        if let Some(entry) = self.jobs.get(id) {
            entry.abandon.cancel();
        }
    }

    /// Whether a job is kept: not when it could not be started, and nobody had been told of it.
    pub(super) fn is_known(&self, id: &JobId) -> bool {
        self.jobs.contains_key(id)
    }

    /// Notes that somebody knows a job that has not started, so that it must not vanish; false when it has already.
    pub(super) fn tell(&mut self, id: &JobId) -> bool {
        self.jobs.get_mut(id).map(|entry| entry.told = true).is_some()
    }

    /// A job could not be started. One that nobody was told of goes without a trace. Its key is free again.
    pub(super) fn fail(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        if entry.told {
            if let Some(key) = entry.key.take() {
                self.by_key.remove(&key);
            }
            self.finish(id);
        } else {
            self.remove(id);
        }
    }

    /// Notes that a job is over; it is kept among the finished ones.
    pub(super) fn finish(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id)
            && !entry.finished
        {
            entry.finished = true;
            entry.stdin = None;
            self.finished.push_back(id.clone());
            let caller = entry.job.caller.clone();
            self.note_change(&caller);
        }
    }

    fn note_change(&self, caller: &Caller) {
        self.changes.send_modify(|counts| *counts.entry(caller.clone()).or_default() += 1);
    }

    /// Notes that the store has a job.
    pub(super) fn note_stored(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.stored = true;
        }
    }

    /// Takes a finished job away that the store has; false when it does not have it.
    pub(super) fn let_go(&mut self, id: &JobId) -> bool {
        let is_stored = self.jobs.get(id).is_some_and(|entry| entry.stored);
        if is_stored {
            self.remove(id);
        }
        is_stored
    }

    /// Notes that a job goes on, and nobody here records it any more.
    pub(super) fn detach(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.stdin = None;
            entry.place = None;
        }
    }

    /// The started jobs that must not outlive this process.
    pub(super) fn to_end(&self) -> Vec<Arc<Job>> {
        let is_ours =
            |entry: &&Entry| entry.stdin.as_ref().is_some_and(|stdin| !stdin.controls().outlives_us());
        self.jobs.values().filter(is_ours).map(|entry| Arc::clone(&entry.job)).collect()
    }

    /// Takes a job away without a trace.
    fn remove(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.remove(id) else { return };
        self.note_change(&entry.job.caller);
        self.finished.retain(|finished| finished != id);
        if let Some(key) = entry.key {
            self.by_key.remove(&key);
        }
    }

    /// Takes a finished job away; its outcome stays on a tombstone, and its key is not free again before that goes.
    pub(super) fn bury(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.remove(id) else { return };
        self.note_change(&entry.job.caller);
        self.finished.retain(|finished| finished != id);
        let Entry { job, key, .. } = entry;
        let (caller, host) = (job.caller.clone(), job.spec.host.clone());
        let tombstone = Tombstone { id: id.clone(), caller, host, status: job.status() };
        let spec = job.spec.fingerprint(&self.secret);
        self.grave_order.push_back(id.clone());
        self.graves.insert(id.clone(), Grave { tombstone, key, spec, since: Instant::now() });
        self.clear_graves();
    }

    /// Lets go of what is too old, or too much.
    pub(super) fn clear_graves(&mut self) {
        while let Some(oldest) = self.grave_order.front() {
            let is_old = self.graves.get(oldest).is_none_or(|grave| grave.since.elapsed() >= GRAVE_KEPT);
            if !is_old && self.grave_order.len() <= MOST_GRAVES {
                return;
            }
            let grave = self.graves.remove(oldest);
            if let Some(key) = grave.and_then(|grave| grave.key)
                && self.by_key.get(&key) == Some(oldest)
            {
                self.by_key.remove(&key);
            }
            self.grave_order.pop_front();
        }
    }

    /// The jobs that the store does not have.
    pub(super) fn unstored(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|entry| !entry.stored).map(|entry| &entry.job)
    }

    /// Jobs that run, those that are finished and kept, and all that were taken in.
    pub(super) fn counts(&self) -> (usize, usize, u64) {
        (self.jobs.len() - self.finished.len(), self.finished.len(), self.taken_in)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|entry| !entry.finished).map(|entry| &entry.job)
    }

    /// The finished jobs, oldest first.
    pub(super) fn finished(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.finished.iter().filter_map(|id| self.jobs.get(id)).map(|entry| &entry.job)
    }
}

#[cfg(test)]
mod tests;
