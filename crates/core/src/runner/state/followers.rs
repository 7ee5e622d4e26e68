//! Which durable jobs each host's follower has, and how much of their output arrived.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};

use crate::hosts::HostRef;
use sshjobs_base::lock::{LockGuard, lock};
use sshjobs_job::spool::FollowFrom;
use sshjobs_job::{FarEvent, Job, JobId, Positions};

/// Followers of durable jobs, one for each host that has such jobs.
#[derive(Default)]
pub(crate) struct Followers(Mutex<HashMap<HostRef, Arc<Follower>>>);

/// The jobs to follow on one host. One task of the runner runs it.
#[derive(Default)]
pub(crate) struct Follower {
    followed: Mutex<HashMap<JobId, Followed>>,
    session: Mutex<CurrentSession>,
    /// Notified when the session misses a job and must be restarted.
    pub(crate) changed: Notify,
}

/// An idle follower is held by the list of followers and by its own task.
const HOLDERS_OF_IDLE: usize = 2;

/// A job whose output is followed.
pub(crate) struct Followed {
    pub(crate) job: Arc<Job>,
    /// Bytes of each stream received so far.
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
    pub(crate) events: mpsc::Sender<FarEvent>,
    /// The session that was asked to follow the job.
    session: String,
}

/// The follower's channel.
#[derive(Default)]
struct CurrentSession {
    name: String,
    /// It has reported that it follows, so jobs can be added to it.
    is_up: bool,
    /// It reported output of jobs not registered yet, and won't repeat it.
    has_strays: bool,
    /// It skipped some of a job's output, or ended a job before all of its output arrived.
    has_skipped_output: bool,
}

impl Followers {
    /// The follower of a host, and whether it is new. The caller must run a new one.
    pub(crate) fn of(&self, host: &HostRef) -> (Arc<Follower>, bool) {
        let mut followers = lock(&self.0);
        let is_new = !followers.contains_key(host);
        (
            Arc::clone(followers.entry(host.clone()).or_default()),
            is_new,
        )
    }

    /// Stops following a job. Its recorder ends once nothing can send it events any more.
    pub(crate) fn unfollow(&self, host: &HostRef, job: &JobId) -> Option<Followed> {
        let follower = lock(&self.0).get(host).cloned()?;
        follower.followed().remove(job)
    }

    /// Removes a follower without jobs. Returns false if it has a job again, or may get one: a start
    /// that is in progress holds it, and follows the job once the host has started it.
    pub(crate) fn retire(&self, host: &HostRef) -> bool {
        let mut followers = lock(&self.0);
        // Counted under the lock: a start gets the follower only through `of`, which waits for it.
        let is_idle = followers.get(host).is_some_and(|follower| {
            follower.is_idle() && Arc::strong_count(follower) <= HOLDERS_OF_IDLE
        });
        if is_idle {
            followers.remove(host);
        }
        is_idle
    }
}

impl Follower {
    pub(crate) fn followed(&self) -> LockGuard<'_, HashMap<JobId, Followed>> {
        lock(&self.followed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.followed().is_empty()
    }

    /// The session that a job being started can be added to, if any.
    pub(crate) fn session_name(&self) -> Option<String> {
        let session = lock(&self.session);
        session.is_up.then(|| session.name.clone())
    }

    /// Follows a job after these offsets of its streams. `told` is the session that the start added
    /// the job to, if any.
    pub(crate) fn follow(
        &self,
        job: &Arc<Job>,
        received: Positions,
        events: mpsc::Sender<FarEvent>,
        told: Option<String>,
    ) {
        // Locked up to the insertion, so that output either comes before it and is noted as stray,
        // or finds the job.
        let mut all = self.followed();
        let has_strays = lock(&self.session).has_strays;
        let is_followed = told.is_some() && told == self.session_name() && !has_strays;
        let session = if is_followed { told } else { None };
        let followed = Followed {
            job: Arc::clone(job),
            stdout: received.stdout,
            stderr: received.stderr,
            events,
            // An empty name belongs to no session, so the next one must take the job.
            session: session.unwrap_or_default(),
        };
        all.insert(job.id.clone(), followed);
        drop(all);
        if !is_followed {
            self.changed.notify_one();
        }
    }

    /// Starts a session. Returns the jobs to send to it first.
    pub(crate) fn begin(&self, name: &str) -> Vec<FollowFrom> {
        *lock(&self.session) = CurrentSession {
            name: name.to_owned(),
            ..CurrentSession::default()
        };
        let mut followed = self.followed();
        let from = followed.values_mut().map(|followed| {
            name.clone_into(&mut followed.session);
            FollowFrom {
                job: followed.job.id.as_str().to_owned(),
                stdout: followed.stdout,
                stderr: followed.stderr,
            }
        });
        from.collect()
    }

    /// The session follows.
    pub(crate) fn mark_up(&self) {
        lock(&self.session).is_up = true;
    }

    /// The session reported output of a job that is not in `followed`. When the job is added later,
    /// a new session must start.
    pub(crate) fn note_stray(&self, followed: &HashMap<JobId, Followed>, job: &JobId) {
        if !followed.contains_key(job) {
            lock(&self.session).has_strays = true;
        }
    }

    /// The session has ended.
    pub(crate) fn end(&self) {
        lock(&self.session).is_up = false;
    }

    /// Notes that the host has delivered all output of its jobs so far.
    pub(crate) fn note_caught_up(&self) {
        for followed in self.followed().values() {
            // First: who waits for the host then waits for this output.
            followed.job.note_delivered(followed.stdout + followed.stderr);
            followed.job.note_reach(true);
        }
    }

    pub(crate) fn note_reach(&self, is_reached: bool) {
        self.followed()
            .values()
            .for_each(|followed| followed.job.note_reach(is_reached));
    }

    /// The session skipped output of this job. A new session must start where the received output
    /// ends.
    pub(crate) fn require_new_session(&self, followed: &mut Followed) {
        followed.session.clear();
        lock(&self.session).has_skipped_output = true;
        self.changed.notify_one();
    }

    /// Whether the session has skipped output.
    pub(crate) fn has_skipped_output(&self) -> bool {
        lock(&self.session).has_skipped_output
    }

    /// Whether the session was asked to follow every job.
    pub(crate) fn has_all(&self) -> bool {
        let name = lock(&self.session).name.clone();
        self.followed().values().all(|followed| followed.session == name)
    }
}
