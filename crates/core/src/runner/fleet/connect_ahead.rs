//! Connects to the hosts of a fleet before it is their turn, so that a host that is slow or never answers keeps
//! no other waiting.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::hosts::{HostRef, Lease, Link};
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::Job;

/// Maximum attempts of this process. Most are to hosts that don't answer.
const MOST_ATTEMPTS: usize = 1024;
/// An attempt takes one of this part of the files that the process may open.
const PART_OF_FILES: u64 = 4;
/// Time after which an attempt counts as slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Time after which a host is overtaken by those after it.
pub(super) const OVERTAKEN_AFTER: Duration = Duration::from_millis(200);
/// Maximum connected members that wait for their turn, and attempts that are not slow.
const MOST_AHEAD: usize = 256;

/// Slots for the attempts of all fleets.
static ATTEMPTS: LazyLock<Semaphore> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let attempts = usize::try_from(files / PART_OF_FILES).unwrap_or(usize::MAX);
    Semaphore::new(attempts.clamp(1, MOST_ATTEMPTS))
});

/// A connection to a member's host, or why there is none.
pub(super) type MemberConnection = Result<Lease<Arc<Link>>, SpawnError>;

/// Makes the connections for a fleet's members, in their order.
pub(super) struct ConnectAhead {
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    members: Arc<[String]>,
    /// Index of the first member that was not connected to.
    next: usize,
    attempts: JoinSet<(usize, MemberConnection)>,
    /// When each attempt in progress began, by member.
    began: HashMap<usize, Instant>,
}

impl ConnectAhead {
    pub(super) fn new(shared: &Arc<RunnerState>, job: &Arc<Job>, members: Arc<[String]>) -> Self {
        Self {
            shared: Arc::clone(shared),
            job: Arc::clone(job),
            members,
            next: 0,
            attempts: JoinSet::new(),
            began: HashMap::new(),
        }
    }

    /// Whether there are members that were not connected to.
    pub(super) fn has_more(&self) -> bool {
        self.next < self.members.len()
    }

    /// Index of the first member that none after it may overtake: its host may still answer in time.
    pub(super) fn first_in_time(&self) -> Option<usize> {
        let in_time = self.began.iter().filter(|(_, began)| began.elapsed() < OVERTAKEN_AFTER);
        in_time.map(|(index, _)| *index).min()
    }

    /// Starts more attempts, unless enough are in progress: `connected` members wait for their turn.
    pub(super) fn start_more(&mut self, connected: usize) {
        let in_time = self.began.values().filter(|began| began.elapsed() < SLOW_AFTER).count();
        for _ in connected + in_time..MOST_AHEAD {
            let Some(name) = self.members.get(self.next) else { return };
            let Ok(slot) = ATTEMPTS.try_acquire() else { return };
            let host = HostRef {
                caller: self.job.caller.clone(),
                name: name.clone(),
            };
            let shared = Arc::clone(&self.shared);
            let index = self.next;
            self.began.insert(index, Instant::now());
            self.attempts.spawn(async move {
                let leased = shared.hosts.pool().lease(&host).await;
                drop(slot);
                (index, leased.map_err(SpawnError::from))
            });
            self.next += 1;
        }
    }

    /// Waits for the next member whose host is connected to, or can't be. `None` if no attempt is in progress.
    /// Cancel safe.
    pub(super) async fn next_result(
        &mut self,
    ) -> Option<Result<(usize, MemberConnection), JoinError>> {
        let ended = self.attempts.join_next().await?;
        if let Ok((index, _)) = &ended {
            self.began.remove(index);
        }
        Some(ended)
    }
}
