//! Connects to the hosts of a fleet before it is their turn, so that a host that is slow or never answers keeps
//! no other waiting.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::task::{JoinError, JoinSet};

use crate::hosts::{HostRef, Lease, Link};
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::Job;

/// Maximum hosts that are connected to at the same time. Most of them are those that don't answer.
const MOST_AT_A_TIME: usize = 1024;
/// Files that this process may open, for each host that is connected to.
const FILES_PER_HOST: u64 = 4;
/// Connections that are made beyond those of the members that may run at the same time.
const CONNECTED_AHEAD: usize = 64;

/// A connection to a member's host, or why there is none.
pub(super) type MemberConnection = Result<Lease<Arc<Link>>, SpawnError>;

/// Makes the connections for a fleet's members, in their order.
pub(super) struct ConnectAhead {
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    members: Arc<[String]>,
    /// The first member whose host was not connected to.
    next: usize,
    /// Maximum hosts that are connected to at the same time.
    at_a_time: usize,
    connecting: JoinSet<(usize, MemberConnection)>,
}

impl ConnectAhead {
    pub(super) fn new(shared: &Arc<RunnerState>, job: &Arc<Job>, members: Arc<[String]>) -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let hosts = usize::try_from(files / FILES_PER_HOST).unwrap_or(usize::MAX);
        Self {
            shared: Arc::clone(shared),
            job: Arc::clone(job),
            members,
            next: 0,
            at_a_time: hosts.clamp(1, MOST_AT_A_TIME),
            connecting: JoinSet::new(),
        }
    }

    /// Connects to more hosts, unless enough are connected to: `connected` of them wait for their turn.
    pub(super) fn go_on(&mut self, connected: usize) {
        if connected >= CONNECTED_AHEAD {
            return;
        }
        while self.connecting.len() < self.at_a_time
            && let Some(name) = self.members.get(self.next)
        {
            let host = HostRef {
                caller: self.job.caller.clone(),
                name: name.clone(),
            };
            let shared = Arc::clone(&self.shared);
            let index = self.next;
            self.connecting.spawn(async move {
                let leased = shared.hosts.pool().lease(&host).await;
                (index, leased.map_err(SpawnError::from))
            });
            self.next += 1;
        }
    }

    /// Waits for the next member whose host is connected to, or can't be. `None` if no host is being connected
    /// to. Cancel safe.
    pub(super) async fn connected(
        &mut self,
    ) -> Option<Result<(usize, MemberConnection), JoinError>> {
        self.connecting.join_next().await
    }
}
