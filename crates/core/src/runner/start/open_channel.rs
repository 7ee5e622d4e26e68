//! Opens a channel for a job: a spare or new one, on another connection if the first is dead or
//! full.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::hosts::{HostRef, Lease, Link, OpenedChannel, RefusedChannels, SlotWait, is_refused};
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::{Job, Pace};
use sshjobs_ssh::ChannelError;

/// A channel on which nothing runs yet, and its slot on the connection.
pub(crate) struct OpenChannel {
    pub(crate) lease: Lease<Arc<Link>>,
    pub(crate) opened: OpenedChannel,
}

/// Attempts to open a channel for a job. A pooled connection may have died unnoticed, or be full.
pub(crate) struct ChannelAttempts {
    attempts: usize,
    refusals: usize,
    last: ChannelError,
}

/// Time limit for a pooled connection to open a channel. Then another connection is tried.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum attempts on connections that turn out to be dead.
const MOST_ATTEMPTS: usize = 4;
/// Maximum channels that a server may refuse one job, over all connections.
const MOST_REFUSALS: usize = 64;

impl ChannelAttempts {
    pub(crate) fn new() -> Self {
        Self {
            attempts: 0,
            refusals: 0,
            last: ChannelError::ConnectionLost,
        }
    }

    /// The channel is unusable: its connection was lost.
    pub(crate) fn note_lost(&mut self) {
        self.attempts += 1;
        self.last = ChannelError::ConnectionLost;
    }

    /// Opens a channel to the job's host. If the first connection fails, uses another.
    pub(crate) async fn open(
        &mut self,
        shared: &RunnerState,
        job: &Job,
    ) -> Result<OpenChannel, SpawnError> {
        while self.attempts < MOST_ATTEMPTS && self.refusals < MOST_REFUSALS {
            let lease = lease(shared, job).await?;
            match try_open(shared, job, &lease).await {
                Ok(opened) => return Ok(OpenChannel { lease, opened }),
                Err(error @ ChannelError::TimedOut(_)) => {
                    return Err(SpawnError::channel(job, error));
                }
                Err(error @ ChannelError::OpenRefused) => {
                    // The pool learns from each refusal, so that the next attempt uses another
                    // connection. A connection that refuses its very first channel is not worth
                    // many logins.
                    self.attempts += match lease.note_refusal() {
                        RefusedChannels::EveryChannel => MOST_ATTEMPTS / 2,
                        RefusedChannels::OneMore => 0,
                    };
                    self.refusals += 1;
                    self.last = error;
                }
                // Opening a channel requests no terminal and no shell, so the others do not occur here.
                Err(
                    ChannelError::ConnectionLost
                    | ChannelError::PtyRefused
                    | ChannelError::NoGreeting(_)
                    | ChannelError::Silent,
                ) => self.note_lost(),
            }
        }
        Err(SpawnError::channel(job, self.last.clone()))
    }
}

/// A slot for a job's channel: on a shared connection, or on one of its own.
async fn lease(shared: &RunnerState, job: &Job) -> Result<Lease<Arc<Link>>, SpawnError> {
    let host = HostRef::of(job);
    let pool = shared.hosts.pool();
    match job.spec.pace {
        Pace::Free => Ok(pool.lease(&host).await?),
        Pace::OfFollower => Ok(pool.lease_alone(&host).await?),
    }
}

async fn try_open(
    shared: &RunnerState,
    job: &Job,
    lease: &Lease<Arc<Link>>,
) -> Result<OpenedChannel, ChannelError> {
    let link = lease.connection();
    if !link.answers().await {
        suspect_the_silent(shared, &HostRef::of(job));
        return Err(ChannelError::ConnectionLost);
    }
    // Safe to cancel: a channel that opens too late is closed by the task that opens it.
    let mut opened = timeout(OPEN_TIMEOUT, link.open()).await.unwrap_or_else(|_| {
        link.suspect();
        Err(ChannelError::ConnectionLost)
    });
    // The server may still be busy with a request from when the connection was made.
    let mut wait = SlotWait::new();
    while is_refused(&opened) && lease.is_only() && wait.pause().await {
        opened = link.open().await;
    }
    opened
}

/// One connection of a host does not answer. Marks the others that have been silent since, so that
/// they are not asked one after the other.
fn suspect_the_silent(shared: &RunnerState, host: &HostRef) {
    shared.hosts.pool().each(host, |link| {
        if link.is_silent() {
            link.suspect();
        }
    });
}
