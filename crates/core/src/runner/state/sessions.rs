//! The interface of sessions, in which hosts send the output of their durable jobs.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::SpawnError;
use crate::hosts::HostRef;
use sshjobs_job::spool::FollowFrom;

/// Starts sessions on hosts: over SSH, or in a simulation.
pub(crate) trait Sessions: Send + Sync {
    /// Reaches a host and starts a session on it. `start` is called once the host is reached, so that
    /// jobs that were added meanwhile are among its jobs. `None` if the host does not answer.
    fn start<'a>(
        &'a self,
        host: &'a HostRef,
        start: &'a (dyn Fn() -> SessionStart + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<Box<dyn FollowerSession>>, SpawnError>>;

    /// Installs the spool's scripts on a host.
    fn install<'a>(&'a self, host: &'a HostRef) -> BoxFuture<'a, Result<(), SpawnError>>;

    /// A random factor from 0.5 to 1.5 for the pause before the next session. It differs between
    /// processes, which may have lost the host at the same moment.
    fn pause_factor(&self) -> f64;
}

/// Name and jobs of a new session.
pub(crate) struct SessionStart {
    /// Its name, by which the host can add jobs to it.
    pub(crate) name: String,
    /// Its jobs, and the offsets from which their output is sent.
    pub(crate) from: Vec<FollowFrom>,
}

/// A running session.
pub(crate) trait FollowerSession: Send {
    /// The next bytes of the host's frames. `None` once the session is lost. Cancel safe.
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>>;

    /// Ends the session on the host.
    fn close(&mut self) -> BoxFuture<'_, ()>;
}
