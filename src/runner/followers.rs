use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, mpsc};

use crate::hosts::HostRef;
use crate::job::{FarEvent, Job, JobId};
use crate::lock::lock;
use crate::spool::FollowFrom;

/// The followers of durable jobs, one for each host that has some.
#[derive(Default)]
pub(super) struct Followers(Mutex<HashMap<HostRef, Arc<Follower>>>);

/// What is to be followed on a host. A task of the runner's does it.
#[derive(Default)]
pub(super) struct Follower {
    followed: Mutex<HashMap<JobId, Followed>>,
    session: Mutex<Session>,
    /// Told when the session does not follow all that it should.
    pub(super) changed: Notify,
}

/// A job whose output is followed.
pub(super) struct Followed {
    pub(super) job: Arc<Job>,
    /// Bytes of its streams that have come.
    pub(super) stdout: u64,
    pub(super) stderr: u64,
    pub(super) events: mpsc::Sender<FarEvent>,
    /// The session that was told of it.
    session: String,
}

/// The follower's channel.
#[derive(Default)]
struct Session {
    name: String,
    /// It has said that it follows: who starts a job may tell it of that.
    is_up: bool,
    /// It has told of jobs that nobody followed yet, and does not tell that again.
    has_strays: bool,
}

impl Followers {
    /// The follower of a host, and whether it is new: then somebody has to run it.
    pub(super) fn of(&self, host: &HostRef) -> (Arc<Follower>, bool) {
        let mut followers = lock(&self.0);
        let is_new = !followers.contains_key(host);
        (Arc::clone(followers.entry(host.clone()).or_default()), is_new)
    }

    /// Takes a follower away that has nothing to follow; false when it has something again.
    pub(super) fn retire(&self, host: &HostRef) -> bool {
        let mut followers = lock(&self.0);
        let is_idle = followers.get(host).is_some_and(|follower| follower.is_idle());
        if is_idle {
            followers.remove(host);
        }
        is_idle
    }
}

impl Follower {
    pub(super) fn followed(&self) -> MutexGuard<'_, HashMap<JobId, Followed>> {
        lock(&self.followed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.followed().is_empty()
    }

    /// The session that a job which is being started may be told to; none when there is none.
    pub(super) fn session_name(&self) -> Option<String> {
        let session = lock(&self.session);
        session.is_up.then(|| session.name.clone())
    }

    /// Follows a job behind so many bytes of its streams. `told` is the session that was told of it when it was started.
    pub(super) fn follow(
        &self,
        job: &Arc<Job>,
        ((stdout, stderr), events): ((u64, u64), mpsc::Sender<FarEvent>),
        told: Option<String>,
    ) {
        let mut all = self.followed();
        let has_strays = lock(&self.session).has_strays;
        let is_followed = told.is_some() && told == self.session_name() && !has_strays;
        let followed = Followed {
            job: Arc::clone(job),
            stdout,
            stderr,
            events,
            session: told.filter(|_| is_followed).unwrap_or_default(),
        };
        all.insert(job.id.clone(), followed);
        drop(all);
        if !is_followed {
            self.changed.notify_one();
        }
    }

    /// A session begins; returns what it is to be told first.
    pub(super) fn begin(&self, name: &str) -> Vec<FollowFrom> {
        *lock(&self.session) = Session { name: name.to_owned(), ..Session::default() };
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
    pub(super) fn is_up(&self) {
        lock(&self.session).is_up = true;
    }

    /// The session has told of a job that is not `followed`: whoever follows it later begins another session.
    pub(super) fn note_stray(&self, followed: &HashMap<JobId, Followed>, job: &JobId) {
        if !followed.contains_key(job) {
            lock(&self.session).has_strays = true;
        }
    }

    /// The session is over.
    pub(super) fn end(&self) {
        lock(&self.session).is_up = false;
    }

    pub(super) fn note_reach(&self, is_reached: bool) {
        self.followed().values().for_each(|followed| followed.job.note_reach(is_reached));
    }

    /// The session has left something out of a job's output: another is to begin where that stands.
    pub(super) fn begin_anew(&self, followed: &mut Followed) {
        followed.session.clear();
        self.changed.notify_one();
    }

    /// Whether the session was told of all that is to be followed.
    pub(super) fn has_all(&self) -> bool {
        let name = lock(&self.session).name.clone();
        self.followed().values().all(|followed| followed.session == name)
    }
}
