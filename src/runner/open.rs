use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::SpawnError;
use super::shared::Shared;
use crate::hosts::{HostRef, Lease, Link, Opened};
use crate::job::{Job, Pace};
use crate::ssh::ChannelError;

/// A channel on which nothing runs yet, and the place that it takes on its connection.
pub(super) struct OpenChannel {
    pub(super) lease: Lease<Arc<Link>>,
    pub(super) opened: Opened,
}

/// Tries to open a channel for a job. A pooled connection may have died unnoticed, or be full.
pub(super) struct Tries {
    attempts: usize,
    refusals: usize,
    last: ChannelError,
}

/// Time limit for a pooled connection to open a channel; then another one is tried.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Most tries with connections that turn out to be dead.
const MOST_ATTEMPTS: usize = 4;
/// Most times that the server may refuse a channel, on this connection and others.
const MOST_REFUSALS: usize = 64;
/// A connection that refuses its first channel is asked again after these.
const FIRST_CHANNEL_PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

impl Tries {
    pub(super) fn new() -> Self {
        Self { attempts: 0, refusals: 0, last: ChannelError::ConnectionLost }
    }

    /// A channel that was opened is of no use: its connection is gone.
    pub(super) fn lost(&mut self) {
        self.attempts += 1;
        self.last = ChannelError::ConnectionLost;
    }

    /// Opens a channel to the job's host, on another connection where the first one fails.
    pub(super) async fn open(&mut self, shared: &Shared, job: &Job) -> Result<OpenChannel, SpawnError> {
        while self.attempts < MOST_ATTEMPTS && self.refusals < MOST_REFUSALS {
            let lease = lease(shared, job).await?;
            match try_open(shared, job, &lease).await {
                Ok(opened) => return Ok(OpenChannel { lease, opened }),
                Err(error @ ChannelError::TimedOut(_)) => return Err(SpawnError::channel(job, error)),
                Err(error @ ChannelError::OpenRefused) => {
                    // Each refusal makes the pool wiser, so that this comes to another connection. One that refuses its very
                    // first channel is not worth many logins.
                    self.attempts += if lease.refused() { MOST_ATTEMPTS / 2 } else { 0 };
                    self.refusals += 1;
                    self.last = error;
                }
                Err(ChannelError::ConnectionLost | ChannelError::PtyRefused) => self.lost(),
            }
        }
        Err(SpawnError::channel(job, self.last.clone()))
    }
}

/// A place for a job's channel: on a connection that is shared, or one to itself.
async fn lease(shared: &Shared, job: &Job) -> Result<Lease<Arc<Link>>, SpawnError> {
    let (host, pool) = (HostRef::of(job), shared.hosts.pool());
    match job.spec.pace {
        Pace::Free => Ok(pool.lease(&host).await?),
        Pace::OfFollower => Ok(pool.lease_alone(&host).await?),
    }
}

async fn try_open(shared: &Shared, job: &Job, lease: &Lease<Arc<Link>>) -> Result<Opened, ChannelError> {
    let link = lease.connection();
    if !link.answers().await {
        suspect_the_silent(shared, &HostRef::of(job));
        return Err(ChannelError::ConnectionLost);
    }
    let mut opened = timeout(OPEN_TIMEOUT, link.open()).await.unwrap_or_else(|_| {
        link.suspect();
        Err(ChannelError::ConnectionLost)
    });
    // A server may not have cleaned up yet after what was asked of it when the connection was made.
    for pause in FIRST_CHANNEL_PAUSES {
        if !matches!(opened, Err(ChannelError::OpenRefused)) || !lease.is_only() {
            break;
        }
        sleep(pause).await;
        opened = link.open().await;
    }
    opened
}

/// One connection of a host does not answer: the others that have been silent since are not asked one after the other.
fn suspect_the_silent(shared: &Shared, host: &HostRef) {
    shared.hosts.pool().each(host, |link| {
        if link.is_silent() {
            link.suspect();
        }
    });
}
