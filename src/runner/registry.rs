use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::stdin::Stdin;
use super::{Limits, SpawnError};
use crate::job::{Job, JobId, JobSpec, Status};

/// Every job the runner knows: running, finished and kept, or finished and gone.
#[derive(Default)]
pub(super) struct Registry {
    jobs: HashMap<JobId, Entry>,
    by_key: HashMap<String, JobId>,
    /// The finished ones, oldest first.
    finished: VecDeque<JobId>,
    tombstones: HashMap<JobId, Tombstone>,
    tombstone_order: VecDeque<JobId>,
}

pub(super) struct Entry {
    pub(super) job: Arc<Job>,
    /// There while the job runs.
    pub(super) stdin: Option<Arc<Stdin>>,
    key: Option<String>,
    finished: bool,
}

/// What is left of a job that is no longer kept.
#[derive(Clone, Debug)]
pub struct Tombstone {
    /// The host it ran on.
    pub host: String,
    /// How it stood at the end.
    pub status: Status,
}

/// What the runner knows under a job's name.
#[derive(Debug)]
pub enum Lookup {
    /// A job that runs, or is finished and kept.
    Found(Arc<Job>),
    /// A job whose output is gone.
    Expired(Tombstone),
    /// No such job, or one so old that it is forgotten.
    Unknown,
}

/// How many expired jobs are remembered.
const MAX_TOMBSTONES: usize = 10_000;

impl Registry {
    pub(super) fn lookup(&self, id: &JobId) -> Lookup {
        match (self.jobs.get(id), self.tombstones.get(id)) {
            (Some(entry), _) => Lookup::Found(Arc::clone(&entry.job)),
            (None, Some(tombstone)) => Lookup::Expired(tombstone.clone()),
            (None, None) => Lookup::Unknown,
        }
    }

    /// The job that `key` was used for, if it asked for the same.
    pub(super) fn by_key(&self, key: Option<&str>, spec: &JobSpec) -> Result<Option<Arc<Job>>, SpawnError> {
        let entry = key.and_then(|key| self.by_key.get(key)).and_then(|id| self.jobs.get(id));
        let Some(Entry { job, .. }) = entry else { return Ok(None) };
        if job.spec.is_same(spec) { Ok(Some(Arc::clone(job))) } else { Err(SpawnError::KeyReused) }
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

    pub(super) fn insert(&mut self, job: Arc<Job>, key: Option<String>) {
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), job.id.clone());
        }
        self.jobs.insert(job.id.clone(), Entry { job, stdin: None, key, finished: false });
    }

    pub(super) fn set_stdin(&mut self, id: &JobId, stdin: Arc<Stdin>) {
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.stdin = Some(stdin);
        }
    }

    pub(super) fn stdin(&self, id: &JobId) -> Option<Arc<Stdin>> {
        self.jobs.get(id)?.stdin.clone()
    }

    /// Notes that a job is over; it is kept among the finished ones.
    pub(super) fn finish(&mut self, id: &JobId) {
        if let Some(entry) = self.jobs.get_mut(id)
            && !entry.finished
        {
            entry.finished = true;
            entry.stdin = None;
            self.finished.push_back(id.clone());
        }
    }

    /// Takes a job away without a trace: it never started.
    pub(super) fn remove(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.remove(id) else { return };
        self.finished.retain(|finished| finished != id);
        if let Some(key) = entry.key {
            self.by_key.remove(&key);
        }
    }

    /// Takes a finished job away; its outcome stays on a tombstone.
    pub(super) fn bury(&mut self, id: &JobId) {
        let Some(entry) = self.jobs.get(id) else { return };
        let tombstone = Tombstone { host: entry.job.spec.host.clone(), status: entry.job.status() };
        self.remove(id);
        if self.tombstone_order.len() == MAX_TOMBSTONES
            && let Some(oldest) = self.tombstone_order.pop_front()
        {
            self.tombstones.remove(&oldest);
        }
        self.tombstone_order.push_back(id.clone());
        self.tombstones.insert(id.clone(), tombstone);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().map(|entry| &entry.job)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values().filter(|entry| !entry.finished).map(|entry| &entry.job)
    }

    /// The finished jobs, oldest first.
    pub(super) fn finished(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.finished.iter().filter_map(|id| self.jobs.get(id)).map(|entry| &entry.job)
    }
}
